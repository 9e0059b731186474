"""A ReAct agent with a working memory: it calls tools in turns, and keeps notes for itself.

Run it with `python react_memory.py`; without a configuration file it uses the small default
model in this process, which is too weak to choose tools well. `TWOPASS_CONFIG` names a better one.
"""

import sys

from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from twopass import LLMProvider

MAX_ROUNDS = 4


class Memory:
    """The notes that the model sees before every turn."""

    def __init__(self) -> None:
        self.text = "(empty)"

    def prompt(self) -> SystemMessage:
        """What the model is told."""
        return SystemMessage(
            "Use the tools to do the task, then answer briefly.\n"
            f"Your working memory: {self.text}"
        )


def main(provider: LLMProvider, task: str) -> str:
    """Works on the task until the model answers without a call."""
    memory = Memory()

    @tool
    def overwrite_memory(text: str) -> str:
        """Replace the working memory with a text."""
        memory.text = text
        return "kept"

    @tool
    def get_forecast(city: str) -> str:
        """Get the weather forecast for a city."""
        return f"Sun in {city}, 21 degrees."

    tools = {each.name: each for each in (overwrite_memory, get_forecast)}
    client = provider.client.bind_tools(list(tools.values()))
    history: list[AnyMessage] = [HumanMessage(task)]
    for _ in range(MAX_ROUNDS):
        message = client.invoke([memory.prompt(), *history])
        thinking = message.additional_kwargs["thinking"]
        print(f"thought: {thinking!r}", file=sys.stderr)
        history.append(message)
        if not message.tool_calls:
            return provider.parse_response(str(message.content))["response"]
        for call in message.tool_calls:
            result = tools[call["name"]].invoke(call["args"])
            print(f"{call['name']}({call['args']}) -> {result}", file=sys.stderr)
            history.append(ToolMessage(result, tool_call_id=call["id"]))
    return "The task needs more rounds."


if __name__ == "__main__":
    question = " ".join(sys.argv[1:]) or "What is the weather in Rome? Remember it."
    print(main(LLMProvider(), question))
