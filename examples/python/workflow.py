"""A workflow: three fixed steps, of which the second thinks.

Run it with `python workflow.py`; without a configuration file it uses the small default model
in this process.
"""

import sys

from twopass import LLMProvider


def main(provider: LLMProvider, topic: str) -> str:
    """Collects points, judges them, and writes them up."""
    points = provider.invoke(f"List three facts about {topic}.", max_response_tokens=96)
    judged = provider.invoke(
        f"Which of these facts is the most surprising?\n{points['response']}",
        thinking=True,
        max_thinking_tokens=48,
        max_response_tokens=48,
    )
    print(f"thought: {judged['thinking']!r}", file=sys.stderr)
    written = provider.invoke(
        f"Write one sentence about this: {judged['response']}", max_response_tokens=48
    )
    return written["response"]


if __name__ == "__main__":
    print(main(LLMProvider(), " ".join(sys.argv[1:]) or "the moon"))
