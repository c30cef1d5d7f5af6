"""Puts back after each test what those of azure-cosmos replace in it, and leave replaced where they fail."""

import pytest
from azure.cosmos import _retry_utility


@pytest.fixture(autouse=True)
def _restored():
    execute = _retry_utility.ExecuteFunction
    yield
    _retry_utility.ExecuteFunction = execute
