import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.graph import DeviceError, FlowNode, Slots, Stopped, visible_devices


def test_no_device_is_held_twice_and_none_is_lost() -> None:
    slots, held, lock = Slots(workers=8, devices="abc"), set[str](), threading.Lock()

    def use(count: int) -> int:
        with slots.take(count) as variables:
            mine = set(variables["CUDA_VISIBLE_DEVICES"].split(","))
            with lock:
                assert not held & mine
                held.update(mine)
            with lock:
                held.difference_update(mine)
            return len(mine)

    counts = [1 + i % 3 for i in range(300)]  # 3 at once next to 2 and 1: taken one by one they would deadlock
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, counts)) == counts


def test_a_stage_without_devices_does_not_wait_for_them() -> None:
    slots = Slots(workers=2, devices=["0"])
    with slots.take(1), slots.take(0) as variables:
        assert variables == {}


def test_a_device_that_is_listed_twice_is_shared_by_two_stages_and_no_stage_has_it_twice() -> None:
    slots = Slots(workers=8, devices=("a", "b", "a"))
    with slots.take(1) as first, slots.take(2) as both:
        assert first == {"CUDA_VISIBLE_DEVICES": "a"}
        assert sorted(both["CUDA_VISIBLE_DEVICES"].split(",")) == ["a", "b"]
    with pytest.raises(DeviceError, match="this machine has 2"):
        slots.check([FlowNode("team", "", gpus=3)])


def test_nobody_waits_for_a_device_where_there_is_none() -> None:
    slots = Slots(workers=2, devices=())
    slots.check([FlowNode("gpu", "", gpus=2)])
    with slots.take(2) as first, slots.take(1) as second:
        assert first == second == {}


def test_at_most_so_many_run_at_once() -> None:
    slots, running, most, lock = Slots(workers=3, devices=()), 0, 0, threading.Lock()

    def use(_: int) -> None:
        nonlocal running, most
        with slots.take(0):
            with lock:
                running, most = running + 1, max(most, running + 1)
            with lock:
                running -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(200)))
    assert running == 0
    assert most <= 3


def test_a_stop_ends_the_waiting() -> None:
    slots = Slots(workers=1, devices=())
    with ThreadPoolExecutor(1) as pool, slots.take(0):
        waiter = pool.submit(lambda: slots.take(0).__enter__())
        slots.stop()
        with pytest.raises(Stopped):
            waiter.result()


def test_too_few_devices_is_an_error_before_anything_waits() -> None:
    with pytest.raises(DeviceError, match="'big' asks for 3"):
        Slots(workers=1, devices="ab").check([FlowNode("small", "", gpus=2), FlowNode("big", "", gpus=3)])


def test_devices_are_those_that_cuda_may_see() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}) == ("GPU-1", "GPU-2")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == ()
