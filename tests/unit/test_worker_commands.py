from __future__ import annotations

import os
import signal
import threading

from tenure.worker.commands import Commands


def test_words_come_in_order_and_none_when_there_is_none() -> None:
    commands = Commands()
    commands.put("a")
    commands.put("b")
    assert [commands.get(), commands.get(), commands.get(0.0)] == ["a", "b", None]


def test_a_word_from_another_thread_wakes_the_reader() -> None:
    commands = Commands()
    thread = threading.Thread(target=commands.put, args=("a",))
    thread.start()
    assert commands.get(20.0) == "a"
    thread.join()


def test_many_words_do_not_block_the_writer() -> None:
    commands = Commands()
    for _ in range(70_000):
        commands.put("a")
    assert sum(commands.get(0.0) == "a" for _ in range(70_000)) == 70_000
    assert commands.get(0.0) is None


def test_a_signal_is_never_lost_however_close_to_the_wait_it_comes() -> None:
    commands = Commands()
    with commands.from_signals({signal.SIGUSR1: "told", signal.SIGUSR2: ""}):
        for _ in range(300):
            thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
            thread.start()
            assert commands.get(20.0) == "told"
            thread.join()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert commands.get(0.0) is None


def test_in_another_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    seen = []

    def run() -> None:
        with Commands().from_signals({signal.SIGUSR1: "told"}):
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_a_word_is_about_goes_to_its_action() -> None:
    commands, told = Commands(), list[str]()
    commands.act_on("tell-of", told.append)
    commands.put("tell-of", "receipt")
    assert (told, commands.get(0.0)) == (["receipt"], None)


def test_a_word_that_is_acted_on_is_not_waited_for() -> None:
    commands, looks = Commands(), []
    commands.act_on("look", lambda: looks.append(True))
    commands.put("look")
    commands.put("drain")
    assert (commands.get(0.0), commands.get(0.0)) == ("drain", None)
    assert looks == [True]
