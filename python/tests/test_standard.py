"""LangChain's standard suites against the model in this process."""

from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from conftest import embedded
from twopass import ChatVllm, TwopassEmbeddings

SETTINGS = embedded(max_response_tokens=160)


class TestChatUnit(ChatModelUnitTests):
    """No request is made. `test_serdes` skips: core revives only classes of its own list."""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatVllm

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "smollm2-135m"}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        variables = {"TWOPASS_API_KEY": "key", "TWOPASS_BASE_URL": "http://localhost:1"}
        return variables, {}, {"api_key": "key", "base_url": "http://localhost:1"}

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestEmbeddingsIntegration(EmbeddingsIntegrationTests):
    """Vectors of the model of words in this process."""

    @property
    def embeddings_class(self) -> type[Embeddings]:
        return TwopassEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"config": SETTINGS}
