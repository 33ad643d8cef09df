"""asyncpg: no libpq, everything prepared and binary, types learned from the catalogs, sessions reset when they go back to the pool."""

import asyncio
import datetime
import decimal
import ipaddress
import json
import os
import unittest
import uuid

import asyncpg


class Asyncpg(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.connection = await asyncpg.connect()
        self.addAsyncCleanup(self.connection.close)
        await self.connection.execute(os.environ["EMPTY_PLACE"])

    async def test_sends_and_receives_every_kind_of_value(self):
        connection = self.connection
        await connection.execute(
            """CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE point3 AS (x int, y int, z text);
               CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE EXTENSION hstore; CREATE TYPE spans AS RANGE (subtype = date)"""
        )
        await connection.set_builtin_type_codec("hstore", codec_name="pg_contrib.hstore")
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        zone = datetime.timezone.utc
        day = datetime.date(2025, 1, 31)
        for value, as_type in [
            (9223372036854775807, "int8"),
            (True, "bool"),
            (None, "text"),
            (1.5e300, "float8"),
            (float("inf"), "float4"),
            (decimal.Decimal("123456789012345678901234567890.123456789"), "numeric"),
            ("äöü 😀 \\ ' \" \n\t %", "text"),
            (bytes(range(256)), "bytea"),
            (day, "date"),
            (datetime.time(9, 30, 0, 123456), "time"),
            (datetime.datetime(2025, 1, 31, 9, 30, 0, 123456), "timestamp"),
            (datetime.datetime(2025, 1, 31, 9, 30, tzinfo=zone), "timestamptz"),
            (datetime.timedelta(days=3, seconds=7), "interval"),
            (uuid.UUID("9b2a4c1e-0000-4000-8000-000000000001"), "uuid"),
            (ipaddress.ip_interface("192.0.2.1/24"), "inet"),
            (asyncpg.Point(1.5, -2), "point"),
            (asyncpg.BitString("101"), "varbit"),
            (["a", "b,c", "{d}", 'e"f\\', None], "text[]"),
            ([[1, 2], [3, 4]], "int[]"),
            (asyncpg.Range(1, 5), "int4range"),
            ([asyncpg.Range(1, 5), asyncpg.Range(7, 9)], "int4multirange"),
            (asyncpg.Range(day, day + datetime.timedelta(days=1)), "spans"),
            ({"a": [1, None]}, "jsonb"),
            ({"a": "1", "b": None}, "hstore"),
            ((1, 2, "three"), "point3"),
            ("happy", "mood"),
            (["happy", "sad"], "mood[]"),
            (7, "positive"),
        ]:
            with self.subTest(as_type):
                self.assertEqual(await connection.fetchval(f"SELECT $1::{as_type}", value), value)

    async def test_shares_few_backends_and_gives_sessions_back_clean(self):
        async with asyncpg.create_pool(min_size=20, max_size=20) as pool:
            await pool.execute("CREATE TABLE counters (name text PRIMARY KEY, n int NOT NULL); INSERT INTO counters VALUES ('all', 0)")

            async def work(worker):
                for turn in range(10):
                    async with pool.acquire() as connection:
                        # Every connection calls its statements __asyncpg_stmt_1__, __asyncpg_stmt_2__, …
                        first, second = ("SELECT $1::int + 1", "SELECT $1::text || '!'")[:: 1 if worker % 2 else -1]
                        wanted = {"SELECT $1::int + 1": (turn, turn + 1), "SELECT $1::text || '!'": ("a", "a!")}
                        for query in (first, second):
                            argument, result = wanted[query]
                            self.assertEqual(await connection.fetchval(query, argument), result)
                        await connection.execute(f"SET application_name = 'worker {worker}'")
                        async with connection.transaction():
                            await connection.execute("UPDATE counters SET n = n + $1 WHERE name = $2", 1, "all")
                            self.assertEqual(await connection.fetchval("SHOW application_name"), f"worker {worker}")

            await asyncio.gather(*[work(worker) for worker in range(20)])
            self.assertEqual(await pool.fetchval("SELECT n FROM counters"), 200)
            self.assertEqual(await pool.fetchval("SHOW application_name"), "")

    async def test_nests_transactions(self):
        await self.connection.execute("CREATE TABLE notes (body text PRIMARY KEY)")
        async with self.connection.transaction(isolation="serializable"):
            await self.connection.execute("INSERT INTO notes VALUES ('kept')")
            with self.assertRaises(asyncpg.UniqueViolationError) as raised:
                async with self.connection.transaction():
                    await self.connection.execute("INSERT INTO notes VALUES ('dropped')")
                    await self.connection.execute("INSERT INTO notes VALUES ($1)", "kept")
            self.assertEqual(await self.connection.fetchval("SHOW transaction_isolation"), "serializable")
        self.assertEqual((raised.exception.sqlstate, raised.exception.constraint_name), ("23505", "notes_pkey"))
        self.assertEqual(raised.exception.detail, "Key (body)=(kept) already exists.")
        with self.assertRaises(asyncpg.ReadOnlySQLTransactionError):
            async with self.connection.transaction(readonly=True):
                await self.connection.execute("DELETE FROM notes")
        self.assertEqual(await self.connection.fetch("SELECT body FROM notes"), [("kept",)])

    async def test_reports_errors_with_their_codes(self):
        for query, arguments, code in [
            ("SELEC", [], "42601"),
            ("SELECT nowhere", [], "42703"),
            ("SELECT 1; SELECT $1::int", [1], "42601"),
            ("SELECT 1 / $1::int", [0], "22012"),
            ("SELECT $1::text::int", ["x"], "22P02"),
            ("SELECT pg_read_file($1)", ["/etc/passwd"], "42501"),
        ]:
            with self.subTest(query), self.assertRaises(asyncpg.PostgresError) as raised:
                await self.connection.fetch(query, *arguments)
            self.assertEqual(raised.exception.sqlstate, code)
        with self.assertRaises(asyncpg.DataError):
            await self.connection.fetch("SELECT $1::int", "not a number")
        self.assertEqual(await self.connection.fetchval("SELECT 1"), 1)

    async def test_executes_one_statement_many_times(self):
        await self.connection.execute("CREATE TABLE numbers (n int PRIMARY KEY, name text)")
        await self.connection.executemany("INSERT INTO numbers VALUES ($1, $2)", [(n, f"name {n}") for n in range(5000)])
        with self.assertRaises(asyncpg.UniqueViolationError):
            await self.connection.executemany("INSERT INTO numbers VALUES ($1, $2)", [(n, "") for n in range(6000, 2000, -1)])
        self.assertEqual(await self.connection.fetchval("SELECT count(*) FROM numbers"), 5000)

    async def test_reads_by_portal(self):
        async with self.connection.transaction():
            numbers = [row[0] async for row in self.connection.cursor("SELECT generate_series(1, $1::int)", 1000, prefetch=64)]
            cursor = await self.connection.cursor("SELECT generate_series(1, 1000)")
            await cursor.forward(500)
            self.assertEqual(await cursor.fetch(2), [(501,), (502,)])
        self.assertEqual(numbers, list(range(1, 1001)))

    async def test_copies_in_and_out(self):
        await self.connection.execute("CREATE TABLE people (id int, name text, born date)")
        people = [(n, f"name {n}", datetime.date(2000, 1, 1)) for n in range(5000)]
        self.assertEqual(await self.connection.copy_records_to_table("people", records=people), "COPY 5000")
        pieces = []

        async def take(piece):
            pieces.append(piece)

        await self.connection.copy_from_query("SELECT id FROM people WHERE id < $1 ORDER BY id", 1000, output=take)
        self.assertEqual(b"".join(pieces), b"".join(b"%d\n" % n for n in range(1000)))

        async def broken():
            yield b"1,a,2000-01-01\n"
            raise KeyError

        with self.assertRaises(KeyError):
            await self.connection.copy_to_table("people", source=broken(), format="csv")
        self.assertEqual(await self.connection.fetchval("SELECT count(*) FROM people"), 5000)

    async def test_listens_while_idle(self):
        heard = asyncio.Queue()
        await self.connection.add_listener("news", lambda _, pid, channel, payload: heard.put_nowait((channel, payload)))
        other = await asyncpg.connect()
        await other.execute("SELECT pg_notify('news', 'extra')")
        self.assertEqual(await asyncio.wait_for(heard.get(), 10), ("news", "extra"))
        await other.close()
        await self.connection.reset()
        self.assertEqual(await self.connection.fetch("SELECT pg_listening_channels()"), [])

    async def test_collects_notices(self):
        heard = []
        self.connection.add_log_listener(lambda _, message: heard.append((message.severity, message.message)))
        await self.connection.execute("DO $$ BEGIN RAISE WARNING 'careful'; END $$")
        await asyncio.sleep(0)
        self.assertEqual(heard, [("WARNING", "careful")])

    async def test_gives_up_after_a_timeout(self):
        pid = self.connection.get_server_pid()
        with self.assertRaises(asyncio.TimeoutError):
            await self.connection.execute("SELECT pg_sleep(60)", timeout=0.2)
        task = asyncio.create_task(self.connection.fetch("SELECT pg_advisory_xact_lock(4711), pg_sleep(60)"))
        other = await asyncpg.connect()
        while await other.fetchval("SELECT pg_try_advisory_xact_lock(4711)"):
            pass
        self.assertTrue(await other.fetchval("SELECT pg_cancel_backend($1)", pid))
        with self.assertRaises(asyncpg.QueryCanceledError):
            await task
        self.assertTrue(await other.fetchval("SELECT pg_try_advisory_xact_lock(4711)"))
        await other.close()
        self.assertEqual(await self.connection.fetchval("SELECT pg_backend_pid()"), pid)

    async def test_keeps_settings_given_at_the_start(self):
        settings = {"application_name": "a program", "search_path": "elsewhere, public", "statement_timeout": "66s"}
        connection = await asyncpg.connect(server_settings=settings)
        for name, value in settings.items():
            self.assertEqual(await connection.fetchval(f"SHOW {name}"), value)
        await connection.execute("SET statement_timeout = 0")
        await connection.reset()
        self.assertEqual(await connection.fetchval("SHOW statement_timeout"), "66s")
        await connection.close()

    async def test_goes_on_when_a_table_has_changed(self):
        await self.connection.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        self.assertEqual(await self.connection.fetchrow("SELECT * FROM t"), (1,))
        other = await asyncpg.connect()
        await other.execute("ALTER TABLE t ADD b text DEFAULT 'new'")
        await other.close()
        self.assertEqual(await self.connection.fetchrow("SELECT * FROM t"), (1, "new"))
        await self.connection.execute("ALTER TABLE t ALTER a TYPE text")
        self.assertEqual(await self.connection.fetchrow("SELECT * FROM t"), ("1", "new"))

    async def test_reads_each_column_as_what_it_is_on_a_backend_that_did_not_prepare_it(self):
        await self.connection.execute("CREATE TABLE bills AS SELECT 1 AS id, 100 AS paid, 900 AS due")
        others = [await asyncpg.connect() for _ in range(4)]
        for other in others[:3]:
            await other.execute("BEGIN")
        self.assertEqual(dict(await self.connection.fetchrow("SELECT * FROM bills")), {"id": 1, "paid": 100, "due": 900})
        # The backend that has prepared it is taken now, and another is free.
        await others[3].execute("BEGIN")
        await others[0].execute("ROLLBACK")
        await others[0].execute("ALTER TABLE bills DROP paid; ALTER TABLE bills ADD paid int DEFAULT 100")
        for _ in range(3):
            self.assertEqual(dict(await self.connection.fetchrow("SELECT * FROM bills")), {"id": 1, "paid": 100, "due": 900})
        for other in others:
            await other.close()

    async def test_migrates_in_one_script(self):
        async with self.connection.transaction():
            await self.connection.execute(
                """CREATE SCHEMA app;
                   CREATE TABLE app.authors (id bigserial PRIMARY KEY, name text NOT NULL);
                   CREATE TABLE app.books (id bigserial PRIMARY KEY, author bigint REFERENCES app.authors);
                   CREATE VIEW app.shelf AS SELECT * FROM app.books JOIN app.authors USING (id);
                   INSERT INTO app.authors (name) VALUES ('ada')"""
            )
        self.assertEqual(await self.connection.fetchval("SELECT name FROM app.authors WHERE id = $1", 1), "ada")
        await self.connection.execute("DROP SCHEMA app CASCADE")
