"""What the cases share: a list of them, a client, and expectations that say what
they saw. run.py runs the cases and prints one line of JSON for each, of which
python_test.go makes a Go test. MILLRACE_CLIENT says which of the SDK's two clients they use."""

import os
import time
import uuid

import azure.cosmos
from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey, exceptions

import blocking

asynchronous = os.environ.get("MILLRACE_CLIENT") == "aio"
CosmosClient = blocking.client if asynchronous else azure.cosmos.CosmosClient
# A query over all partition keys, which the asynchronous client need not be told of.
across = {} if asynchronous else {"enable_cross_partition_query": True}

endpoint = os.environ["MILLRACE_ENDPOINT"]
key = os.environ["MILLRACE_KEY"]
read_only_key = os.environ["MILLRACE_READ_ONLY_KEY"]
partitions = int(os.environ["MILLRACE_PARTITIONS"])
client = CosmosClient(endpoint, key)

cases = []


def case(name):
    """case adds the function that it decorates to the cases, under a name."""

    def add(function):
        cases.append((name, function))
        return function

    return add


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what or 'got'} {got!r}, want {want!r}")


def database(by=client):
    """database makes a database for the case alone."""
    return by.create_database(f"py{uuid.uuid4().hex}")


def container(paths=("/pk",), by=client, **options):
    """container makes a container in a database for the case alone."""
    kind = "MultiHash" if len(paths) > 1 else "Hash"
    path = list(paths) if len(paths) > 1 else paths[0]
    return database(by).create_container("items", PartitionKey(path, kind=kind), **options)


def refused(status, call, *args, **options):
    """refused expects an error of the SDK's own, with a status and a message."""
    try:
        answer = call(*args, **options)
        if hasattr(answer, "__next__"):
            answer = list(answer)
    except exceptions.CosmosHttpResponseError as error:
        equal(error.status_code, status, f"{error}: status")
        assert error.message, "an error without a message"
        return error
    except AzureError as error:
        raise AssertionError(f"want {status}, not {error!r}") from error
    raise AssertionError(f"no error, want {status}; the answer is {answer!r}")


def eventually(what, condition):
    """eventually waits until a condition holds, for a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not after a minute: {what}"
        time.sleep(0.02)
