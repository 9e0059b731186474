"""LangGraph's ready-made ReAct agent over a model of Twopass.

Run it with `python langgraph_agent.py`; it needs `langgraph`. Without a configuration file it
uses the small default model in this process, which is too weak to choose tools well.
"""

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError
from langgraph.prebuilt import create_react_agent

from twopass import ChatVllm

MAX_STEPS = 8


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def main(model: ChatVllm, task: str) -> str:
    """Runs the agent and shows what it does on the way."""
    agent: Any = create_react_agent(model, [multiply])
    run = {"messages": [HumanMessage(task)]}
    answer = ""
    try:
        for state in agent.stream(run, {"recursion_limit": MAX_STEPS}, stream_mode="values"):
            last = state["messages"][-1]
            print(f"{last.type}: {last.text or getattr(last, 'tool_calls', '')}", file=sys.stderr)
            answer = last.text if isinstance(last, AIMessage) else answer
    except GraphRecursionError:
        return "The task needs more steps."
    return answer


if __name__ == "__main__":
    question = " ".join(sys.argv[1:]) or "What is 6 times 7? Use the tool."
    print(main(ChatVllm(max_response_tokens=96), question))
