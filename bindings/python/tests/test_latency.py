import asyncio
import gc
import inspect
import sys
import threading
import unittest
import unittest.mock

import nopal

from .listening import listening_to


def probe(provider, name):
    return nopal.latency(provider, name)._probe


class Clock:
    """The clock of measurements, while it is entered: it goes on when the test says so."""

    def __init__(self):
        self.now = 0
        self._patch = unittest.mock.patch.object(sys.modules["nopal.latency"], "perf_counter_ns", lambda: self.now)

    def __enter__(self):
        return self._patch.__enter__()

    def __exit__(self, *error):
        return self._patch.__exit__(*error)


class LatencyTest(unittest.TestCase):
    def test_a_function(self):
        @nopal.latency("functions")
        def add(first, second=2, *, third=3):
            """Adds."""
            return first + second + third

        self.assertEqual((add(1), add.__name__, add.__doc__), (6, "add", "Adds."))
        with listening_to(probe("functions", "add")) as fired:
            self.assertEqual(add(1, 1, third=1), 3)
        self.assertEqual(len(fired), 1)
        name, duration, identity, parent = fired[0][1]
        self.assertTrue(name.endswith("test_a_function.<locals>.add"), name)
        self.assertTrue(0 < duration < 10**9)
        self.assertTrue(identity > 0)
        self.assertEqual(parent, 0)

    def test_a_given_name_and_an_own_provider(self):
        with nopal.Provider("own") as provider:

            @nopal.latency(provider, "named")
            def whatever():
                return 1

            with listening_to(provider.probes["named"]) as fired:
                whatever()
            self.assertEqual(fired[0][0], "own:named")
            self.assertEqual(fired[0][1][0], "named")

    def test_names_that_no_probe_can_have(self):
        measured = nopal.latency("lambdas")(lambda: 5)
        with listening_to(probe("lambdas", "_lambda_")) as fired:
            self.assertEqual(measured(), 5)
        self.assertEqual(len(fired), 1)

    def test_exceptions_pass_and_are_measured(self):
        @nopal.latency("failing")
        def fail():
            raise OSError("on purpose")

        with listening_to(probe("failing", "fail")) as fired:
            with self.assertRaisesRegex(OSError, "on purpose"):
                fail()
            with self.assertRaises(KeyError), nopal.latency("failing", "fail"):
                raise KeyError
        self.assertEqual(len(fired), 2)
        self.assertEqual(nopal.current_id(), 0)

    def test_a_block_of_code_and_what_is_inside(self):
        outer, inner = nopal.latency("blocks", "outer"), nopal.latency("blocks", "inner")
        with outer, inner:
            self.assertEqual(nopal.current_id(), 0)
        with listening_to(outer._probe, inner._probe) as fired:
            with outer:
                first = nopal.current_id()
                for _ in range(2):
                    with inner:
                        self.assertNotEqual(nopal.current_id(), first)
                with outer:
                    pass
                self.assertEqual(nopal.current_id(), first)
        self.assertEqual([values[0] for _, values in fired], ["inner", "inner", "outer", "outer"])
        self.assertEqual([values[3] for _, values in fired], [first, first, first, 0])
        self.assertEqual(len({values[2] for _, values in fired}), 4)
        with self.assertRaisesRegex(TypeError, "needs the name"):
            nopal.latency("blocks").__enter__()

    def test_a_tracer_that_comes_or_goes_in_the_middle(self):
        outer = nopal.latency("halfway", "event")
        with outer, listening_to(outer._probe) as fired, outer:
            pass
        self.assertEqual(len(fired), 1)
        with listening_to(outer._probe) as fired:
            outer.__enter__()
        with outer:
            pass
        outer.__exit__()
        self.assertEqual(nopal.current_id(), 0)

    def test_generators_until_they_are_over(self):
        seen = []
        clock = Clock()

        @nopal.latency("generators", "numbers")
        def numbers(n):
            seen.append(nopal.current_id())
            for i in range(n):
                clock.now += 10
                try:
                    answer = yield i
                except KeyError:
                    answer = "caught"
                if answer:
                    seen.append(answer)
            return "the end"

        def outside():
            return (yield from numbers(3))

        self.assertTrue(inspect.isgeneratorfunction(numbers))
        self.assertEqual(list(numbers(2)), [0, 1])
        with clock, listening_to(probe("generators", "numbers")) as fired:
            generator = outside()
            self.assertEqual(next(generator), 0)
            # What its consumer does is not the generator's time, nor under its id.
            clock.now += 1000
            self.assertEqual((fired, nopal.current_id()), ([], 0))
            self.assertEqual(generator.send("hello"), 1)
            self.assertEqual(generator.throw(KeyError()), 2)
            with self.assertRaises(StopIteration) as end:
                next(generator)
            self.assertEqual(end.exception.value, "the end")
            self.assertEqual(len(fired), 1)
            _, duration, identity, _ = fired[0][1]
            self.assertEqual(duration, 30)
            self.assertEqual(seen[-3:], [identity, "hello", "caught"])
            # Closed early, thrown away, failed, never begun.
            closed = numbers(5)
            next(closed)
            closed.close()
            self.assertEqual(len(fired), 2)
            next(numbers(5))
            gc.collect()
            self.assertEqual(len(fired), 3)
            failing = numbers(5)
            next(failing)
            with self.assertRaises(ValueError):
                failing.throw(ValueError())
            self.assertEqual(len(fired), 4)
            numbers(5).close()
            self.assertEqual(len(fired), 4)

    def test_asynchronous_generators_until_they_are_over(self):
        clock = Clock()

        @nopal.latency("generators", "lines")
        async def lines(n):
            for i in range(n):
                await asyncio.sleep(0)
                clock.now += 10
                try:
                    yield i
                except KeyError:
                    yield "caught"

        async def use():
            taken = []
            async for line in lines(3):
                await asyncio.sleep(0)
                clock.now += 1000
                taken.append(line)
            thrown = lines(3)
            taken.append(await thrown.__anext__())
            taken.append(await thrown.athrow(KeyError()))
            await thrown.aclose()
            return taken

        self.assertTrue(inspect.isasyncgenfunction(lines))
        self.assertEqual(asyncio.run(use()), [0, 1, 2, 0, "caught"])
        with clock, listening_to(probe("generators", "lines")) as fired:
            self.assertEqual(asyncio.run(use()), [0, 1, 2, 0, "caught"])
        self.assertEqual([values[1] for _, values in fired], [30, 10])

    def test_tasks_have_ids_of_their_own(self):
        inner = nopal.latency("tasks", "inner")

        @nopal.latency("tasks", "request")
        async def request(n):
            mine = nopal.current_id()
            await asyncio.sleep(0.001 * (n % 3))
            self.assertEqual(nopal.current_id(), mine)
            async with inner:
                await asyncio.sleep(0.001)
            self.assertEqual(nopal.current_id(), mine)
            return n, mine

        async def main():
            return await asyncio.gather(*(request(n) for n in range(50)))

        self.assertTrue(inspect.iscoroutinefunction(request))
        self.assertEqual([n for n, _ in asyncio.run(main())], list(range(50)))
        with listening_to(probe("tasks", "request"), inner._probe) as fired:
            results = asyncio.run(main())
        ids = {identity for _, identity in results}
        self.assertEqual(len(ids), 50)
        parents = [values[3] for name, values in fired if name == "tasks:inner"]
        self.assertEqual(sorted(parents), sorted(ids))
        self.assertEqual({values[2] for name, values in fired if name == "tasks:request"}, ids)

    def test_callers(self):
        @nopal.stack("callers", "called")
        def called(value, *, key):
            return value, key

        @nopal.stack("callers", "awaited")
        async def awaited(value):
            return value

        def caller():
            return called(1, key=2)

        with nopal.Provider("unused"):
            self.assertEqual(caller(), (1, 2))
        probes = [nopal.shared.probe_of("callers", name, "stack") for name in ("called", "awaited")]
        with listening_to(*probes) as fired:
            self.assertEqual(caller(), (1, 2))
            self.assertEqual(asyncio.run(awaited(3)), 3)
        (name, lines), (other, _) = (values for _, values in fired)
        self.assertEqual((name, other), ("called", "awaited"))
        self.assertRegex(lines.splitlines()[0], rf"{__file__}:\d+ in caller$")
        self.assertRegex(lines.splitlines()[1], rf"{__file__}:\d+ in test_callers$")

    def test_both_on_one_function(self):
        @nopal.stack("twice")
        @nopal.latency("twice")
        def act():
            return 1

        with listening_to(*nopal.shared.provider_of("twice").probes.values()) as fired:
            self.assertEqual(act(), 1)
        self.assertEqual([name for name, _ in fired], ["twice:act__stack", "twice:act"])

    def test_threads_have_ids_of_their_own(self):
        seen = []

        @nopal.latency("id_threads")
        def work():
            seen.append(nopal.current_id())

        with listening_to(probe("id_threads", "work")) as fired:
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(set(seen)), 8)
        self.assertEqual({values[3] for _, values in fired}, {0})


if __name__ == "__main__":
    unittest.main()
