"""psycopg 3: libpq with the extended protocol, its pipeline mode, binary formats, and statements prepared behind the scenes."""

import asyncio
import datetime
import ipaddress
import os
import threading
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import psycopg
from psycopg import errors, pq
from psycopg.rows import dict_row
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Jsonb
from psycopg.types.multirange import Multirange
from psycopg.types.range import Range


class Psycopg3(unittest.TestCase):
    def setUp(self):
        self.connection = psycopg.connect("", autocommit=True)
        self.addCleanup(self.connection.close)
        self.connection.execute(os.environ["EMPTY_PLACE"])

    def value(self, query, parameters=None, **options):
        return self.connection.execute(query, parameters, **options).fetchone()[0]

    def test_sends_and_receives_every_kind_of_value(self):
        connection = self.connection
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE point3 AS (x int, y int, z text)")
        info = CompositeInfo.fetch(connection, "point3")
        register_composite(info, connection)
        register_enum(EnumInfo.fetch(connection, "mood"), connection)
        zone = datetime.timezone(datetime.timedelta(hours=9))
        for value, as_type in [
            (9223372036854775807, "int8"),
            (True, "bool"),
            (None, "text"),
            (1.5e300, "float8"),
            (Decimal("123456789012345678901234567890.123456789"), "numeric"),
            ("äöü 😀 \\ ' \" \n\t %", "text"),
            (bytes(range(256)), "bytea"),
            (datetime.date(2025, 1, 31), "date"),
            (datetime.time(9, 30, 0, 123456), "time"),
            (datetime.datetime(2025, 1, 31, 9, 30, 0, 123456), "timestamp"),
            (datetime.datetime(2025, 1, 31, 9, 30, tzinfo=zone), "timestamptz"),
            (datetime.timedelta(days=3, seconds=7), "interval"),
            (uuid.UUID("9b2a4c1e-0000-4000-8000-000000000001"), "uuid"),
            (ipaddress.ip_address("2001:db8::1"), "inet"),
            (["a", "b,c", "{d}", 'e"f\\', None], "text[]"),
            ([[1, 2], [3, 4]], "int[]"),
            (Range(1, 5), "int4range"),
            (Multirange([Range(1, 5), Range(7, 9)]), "int4multirange"),
            (info.python_type(1, 2, "three"), "point3"),
        ]:
            for marker, binary in [("%s", False), ("%t", True), ("%b", True)]:
                if marker == "%b" and as_type == "inet":
                    continue
                with self.subTest(as_type, marker=marker):
                    self.assertEqual(self.value(f"SELECT {marker}::{as_type}", [value], binary=binary), value)
        self.assertEqual(self.value("SELECT %s::jsonb", [Jsonb({"a": [1, None]})]), {"a": [1, None]})
        self.assertEqual(self.value("SELECT 'happy'::mood").name, "happy")

    def test_prepares_what_repeats_and_shares_few_backends(self):
        self.connection.execute("CREATE TABLE numbers AS SELECT generate_series(1, 1000) AS n")

        def work(worker):
            with psycopg.connect("", autocommit=True, prepare_threshold=1) as connection:
                for turn in range(40):
                    # The names that all of them give their statements are the same: _pg3_0, _pg3_1, …
                    column = "n" if worker % 2 else "-n"
                    n = 1 + (worker * 40 + turn) % 1000
                    row = connection.execute(f"SELECT {column} AS n FROM numbers WHERE n = %s", [n]).fetchone()
                    self.assertEqual(row, (n if worker % 2 else -n,))
                    row = connection.execute("SELECT %s::text || %s", [str(n), "!"]).fetchone()
                    self.assertEqual(row, (f"{n}!",))

        with ThreadPoolExecutor(20) as workers:
            list(workers.map(work, range(20)))

    def test_lets_go_of_prepared_statements(self):
        self.connection.prepared_max = 3
        for _ in range(3):
            for n in range(6):
                self.assertEqual(self.value(f"SELECT %s::int + {n}", [1], prepare=True), 1 + n)
        self.connection.execute("DEALLOCATE ALL")
        self.assertEqual(self.value("SELECT count(*) FROM pg_prepared_statements"), 0)

    def test_prepares_again_when_a_table_has_changed(self):
        self.connection.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        read = lambda: self.connection.execute("SELECT * FROM t", prepare=True).fetchone()
        self.assertEqual(read(), (1,))
        with psycopg.connect("", autocommit=True) as other:
            other.execute("ALTER TABLE t ADD b text DEFAULT 'new'")
        try:
            row = read()
        except errors.FeatureNotSupported as error:
            # What plain Postgres says to a client that holds the old statement.
            self.assertIn("cached plan must not change result type", str(error))
        else:
            self.assertEqual(row, (1, "new"))

    def test_sends_a_pipeline_and_reads_the_answers_later(self):
        self.connection.execute("CREATE TABLE numbers (n int PRIMARY KEY)")
        with self.connection.pipeline() as pipeline:
            cursors = [self.connection.execute("INSERT INTO numbers VALUES (%s) RETURNING n * 2", [n]) for n in range(500)]
            pipeline.sync()
            cursors += [self.connection.execute("SELECT count(*) FROM numbers")]
        self.assertEqual([cursor.fetchone()[0] for cursor in cursors], [*range(0, 1000, 2), 500])

    def test_skips_what_follows_an_error_in_a_pipeline(self):
        self.connection.execute("CREATE TABLE numbers (n int PRIMARY KEY)")
        insert = "INSERT INTO numbers VALUES (%s)"
        with self.assertRaises(errors.UniqueViolation), self.connection.pipeline() as pipeline:
            self.connection.execute(insert, [1])
            pipeline.sync()
            self.connection.execute(insert, [2])
            self.connection.execute(insert, [1])
            self.connection.execute(insert, [3])
            pipeline.sync()
        with self.connection.pipeline() as pipeline:
            with self.assertRaises(errors.UniqueViolation):
                self.connection.execute(insert, [1])
                pipeline.sync()
            with self.assertRaises(errors.DivisionByZero):
                self.connection.execute("SELECT 1 / 0").fetchone()
            with self.assertRaises(errors.PipelineAborted):
                self.connection.execute(insert, [4]).fetchone()
            pipeline.sync()
            self.assertEqual(self.value("SELECT array_agg(n) FROM numbers"), [1])

    def test_runs_transactions_in_a_pipeline(self):
        self.connection.execute("CREATE TABLE numbers (n int)")
        with self.connection.pipeline(), self.connection.transaction():
            self.connection.execute("INSERT INTO numbers VALUES (1)")
            with self.assertRaises(errors.UndefinedTable), self.connection.transaction():
                self.connection.execute("INSERT INTO numbers VALUES (2)")
                self.connection.execute("INSERT INTO nowhere VALUES (2)")
            self.connection.cursor().executemany("INSERT INTO numbers VALUES (%s)", [(n,) for n in range(3, 200)])
        self.assertEqual(self.value("SELECT count(*) FROM numbers"), 198)

    def test_pipelines_what_libpq_leaves_to_its_caller(self):
        libpq = self.connection.pgconn
        libpq.enter_pipeline_mode()
        libpq.send_prepare(b"twice", b"SELECT $1::int * 2")
        libpq.send_describe_prepared(b"twice")
        libpq.send_query_prepared(b"twice", [b"21"])
        libpq.send_flush_request()
        libpq.flush()
        replies = [self._reply(libpq) for _ in range(3)]
        libpq.send_query_params(b"SELECT 1 / 0", [])
        libpq.send_query_prepared(b"twice", [b"1"])
        libpq.pipeline_sync()
        libpq.send_query_prepared(b"twice", [b"2"])
        libpq.pipeline_sync()
        libpq.flush()
        replies += [self._reply(libpq) for _ in range(5)]
        libpq.exit_pipeline_mode()
        status = pq.ExecStatus
        self.assertEqual(
            [reply.status for reply in replies],
            [
                status.COMMAND_OK,
                status.COMMAND_OK,
                status.TUPLES_OK,
                status.FATAL_ERROR,
                status.PIPELINE_ABORTED,
                status.PIPELINE_SYNC,
                status.TUPLES_OK,
                status.PIPELINE_SYNC,
            ],
        )
        self.assertEqual([replies[2].get_value(0, 0), replies[6].get_value(0, 0)], [b"42", b"4"])

    def _reply(self, libpq):
        reply = libpq.get_result()
        if reply.status != pq.ExecStatus.PIPELINE_SYNC:
            self.assertIsNone(libpq.get_result())
        return reply

    def test_nests_transactions(self):
        self.connection.execute("CREATE TABLE notes (body text)")
        with self.connection.transaction():
            self.connection.execute("INSERT INTO notes VALUES ('kept')")
            with self.connection.transaction() as inner:
                self.connection.execute("INSERT INTO notes VALUES ('dropped')")
                raise psycopg.Rollback(inner)
        with self.assertRaises(ZeroDivisionError), self.connection.transaction():
            self.connection.execute("INSERT INTO notes VALUES ('dropped too')")
            raise ZeroDivisionError
        self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self.connection.read_only = True
        with self.connection.transaction():
            self.assertEqual(self.value("SHOW transaction_isolation"), "repeatable read")
            self.assertEqual(self.value("SHOW transaction_read_only"), "on")
        self.assertEqual(self.value("SELECT array_agg(body) FROM notes"), ["kept"])

    def test_reports_errors_with_all_that_is_known(self):
        self.connection.execute("CREATE TABLE people (age int CONSTRAINT grown CHECK (age > 17) NOT NULL)")
        with self.assertRaises(errors.CheckViolation) as raised:
            self.connection.execute("INSERT INTO people VALUES (%s)", [3])
        known = raised.exception.diag
        self.assertEqual(
            (known.sqlstate, known.severity_nonlocalized, known.schema_name, known.table_name, known.constraint_name),
            ("23514", "ERROR", "public", "people", "grown"),
        )
        self.assertEqual(known.message_detail, "Failing row contains (3).")
        for query, expected in [
            ("INSERT INTO people VALUES (NULL)", errors.NotNullViolation),
            ("SELEC", errors.SyntaxError),
            ("SELECT 1; SELECT %s", errors.SyntaxError),
            ("SELECT $1::int", errors.UndefinedParameter),
            ("SELECT 'x'::jsonb", errors.InvalidTextRepresentation),
        ]:
            with self.subTest(query), self.assertRaises(expected):
                self.connection.execute(query, [1] if "%s" in query else None)

    def test_copies_text_and_binary(self):
        self.connection.execute("CREATE TABLE people (id int, name text, born timestamptz)")
        born = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)
        cursor = self.connection.cursor()
        with cursor.copy("COPY people FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "timestamptz"])
            for n in range(5000):
                copy.write_row((n, f"name {n}", born))
        with cursor.copy("COPY (SELECT * FROM people ORDER BY id) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "timestamptz"])
            self.assertEqual([row[:2] for row in copy.rows()], [(n, f"name {n}") for n in range(5000)])
        with cursor.copy("COPY people (id, name) FROM STDIN") as copy:
            copy.write_row((5000, "a\tb\\"))
        self.assertEqual(self.value("SELECT name FROM people WHERE id = 5000"), "a\tb\\")
        with self.assertRaises(errors.QueryCanceled), cursor.copy("COPY people FROM STDIN") as copy:
            copy.write(b"1\ta\t2000-01-01\n")
            raise KeyError
        with self.assertRaises(errors.BadCopyFileFormat), cursor.copy("COPY people FROM STDIN") as copy:
            copy.write(b"1\n")
        self.assertEqual(self.value("SELECT count(*) FROM people"), 5001)

    def test_reads_row_by_row_and_by_cursors_of_the_server(self):
        cursor = self.connection.cursor(row_factory=dict_row)
        self.assertEqual(sum(row["n"] for row in cursor.stream("SELECT generate_series(1, 3000) AS n")), 4501500)
        with self.connection.transaction(), self.connection.cursor("numbers", scrollable=True) as cursor:
            cursor.execute("SELECT generate_series(1, %s)", [1000])
            cursor.scroll(900)
            self.assertEqual(len(cursor.fetchall()), 100)
        kept = self.connection.cursor("kept", withhold=True)
        kept.execute("SELECT generate_series(1, 3)")
        self.assertEqual(kept.fetchall(), [(1,), (2,), (3,)])
        kept.close()

    def test_is_cancelled_by_another_thread(self):
        with psycopg.connect("", autocommit=True) as watcher:

            def cancel_when_it_runs():
                while watcher.execute("SELECT pg_try_advisory_xact_lock(4711)").fetchone()[0]:
                    pass
                self.connection.cancel()

            thread = threading.Thread(target=cancel_when_it_runs)
            thread.start()
            with self.assertRaises(errors.QueryCanceled):
                self.connection.execute("SELECT pg_advisory_xact_lock(4711), pg_sleep(60)")
            thread.join()
        self.assertEqual(self.value("SELECT 1"), 1)

    def test_speaks_to_several_at_once(self):
        async def main():
            connections = await asyncio.gather(*[psycopg.AsyncConnection.connect("", autocommit=True) for _ in range(10)])
            await connections[0].execute("LISTEN news")

            async def heard():
                async for notification in connections[0].notifies():
                    return notification.payload

            listening = asyncio.create_task(heard())
            cursors = await asyncio.gather(*[c.execute("SELECT %s::int", [n]) for n, c in enumerate(connections[1:])])
            self.assertEqual([(await cursor.fetchone())[0] for cursor in cursors], list(range(9)))
            await connections[1].execute("NOTIFY news, 'extra'")
            self.assertEqual(await asyncio.wait_for(listening, 10), "extra")
            await asyncio.gather(*[connection.close() for connection in connections])

        asyncio.run(main())

    def test_migrates_in_one_script(self):
        with self.connection.transaction():
            self.connection.execute(
                """CREATE TABLE authors (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
                   CREATE TABLE books (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, author bigint REFERENCES authors);
                   INSERT INTO authors (name) VALUES ('ada');
                   DO $$ BEGIN ASSERT (SELECT count(*) FROM authors) = 1; END $$"""
            )
        with self.assertRaises(errors.UndefinedColumn), self.connection.transaction():
            self.connection.execute("ALTER TABLE books ADD title text; UPDATE books SET titel = ''")
        self.assertEqual(self.value("SELECT count(*) FROM information_schema.columns WHERE table_name = 'books'"), 2)
