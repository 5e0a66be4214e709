"""Users share a model: what one of them computes does not change the numbers of another."""

import threading
import time

import pytest
from anyio import to_thread

from regard.explore.head_ablation import ablated
from regard.explore.model_store import QUEUE, ModelStore
from regard.explore.server import THREADS, ExplorerServer
from regard.trace.record import program_of
from tests.explore.films import save_run


@pytest.fixture
def run(tmp_path):
    return save_run(tmp_path / "run")


def only_model(run):
    return next(iter(ModelStore.open([run])))


def test_markers_wait_for_a_head_ablation(run):
    alone = only_model(run).film.markers()
    model, found, errors = only_model(run), [], []
    film = model.film

    def mark() -> None:
        try:
            found.append(film.markers())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=mark)
    with model.exclusive() as pipeline:
        attentions = program_of(pipeline.model).attentions
        heads = [(one.name, head) for one in attentions for head in range(one.heads)]
        with ablated(pipeline.model, attentions, heads):
            thread.start()
            while thread.is_alive() and model._queued < 2:
                time.sleep(0.01)
    thread.join()
    assert errors == []
    assert found == [alone]


def test_waiting_computations_leave_threads_for_views():
    found = []

    async def app(scope, receive, send):
        raise AssertionError("no request was sent")

    class Started(ExplorerServer):
        async def startup(self, sockets=None):
            found.append(to_thread.current_default_thread_limiter().total_tokens)
            self.should_exit = True

    Started(app).run()
    assert found == [THREADS]
    assert THREADS > 3 * QUEUE  # of three models
