"""`twopass serve` on the test model, for clients that know nothing of it."""

from collections.abc import Iterator

import pytest

from served import Serve, embedded

TOOL = {
    "name": "get_forecast",
    "description": "Get the weather forecast for a city.",
    "parameters": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "additionalProperties": False,
    },
}
QUESTION = [{"role": "user", "content": "Will it rain in Rome tomorrow?"}]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server, with stored responses in a file of this run."""
    folder = tmp_path_factory.mktemp("serve")
    store = {"store": str(folder / "responses.db")}
    with Serve(embedded() | {"server": store}, folder) as serve:
        yield serve.url
