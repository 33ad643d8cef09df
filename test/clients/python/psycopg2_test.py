"""psycopg 2: libpq with the simple protocol only, as a generation of Python programs uses it."""

import datetime
import io
import json
import os
import select
import threading
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal

import psycopg2
import psycopg2.extensions
import psycopg2.extras
from psycopg2 import errors, sql
from psycopg2.pool import ThreadedConnectionPool


class Psycopg2(unittest.TestCase):
    def setUp(self):
        self.connection = psycopg2.connect("")
        self.addCleanup(self.connection.close)
        self.cursor = self.connection.cursor()
        self.cursor.execute(os.environ["EMPTY_PLACE"])
        self.connection.commit()

    def value(self, query, parameters=None):
        self.cursor.execute(query, parameters)
        return self.cursor.fetchone()[0]

    def test_connects_with_settings_of_its_own(self):
        settings = "application_name='a program' options='-c statement_timeout=66s -c TimeZone=Asia/Tokyo'"
        with closing(psycopg2.connect(settings)) as connection:
            with connection.cursor() as cursor:
                for name, value in [("application_name", "a program"), ("statement_timeout", "66s"), ("TimeZone", "Asia/Tokyo")]:
                    cursor.execute(sql.SQL("SHOW {}").format(sql.Identifier(name)))
                    self.assertEqual(cursor.fetchone()[0], value)
            self.assertEqual(connection.get_parameter_status("TimeZone"), "Asia/Tokyo")
            self.assertEqual(connection.server_version // 10000, int(connection.get_parameter_status("server_version").split(".")[0]))

    def test_sends_and_receives_every_kind_of_value(self):
        self.cursor.execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE point3 AS (x int, y int, z text)")
        self.cursor.execute("CREATE EXTENSION hstore")
        psycopg2.extras.register_uuid()
        psycopg2.extras.register_hstore(self.connection)
        psycopg2.extras.register_composite("point3", self.connection)
        zone = datetime.timezone(datetime.timedelta(hours=9))
        for value, as_type in [
            (9223372036854775807, "int8"),
            (True, "bool"),
            (None, "text"),
            (1.5e300, "float8"),
            (float("-inf"), "float8"),
            (Decimal("123456789012345678901234567890.123456789"), "numeric"),
            ("äöü 😀 \\ ' \" \n\t %", "text"),
            (datetime.date(2025, 1, 31), "date"),
            (datetime.time(9, 30, 0, 123456), "time"),
            (datetime.datetime(2025, 1, 31, 9, 30, 0, 123456), "timestamp"),
            (datetime.datetime(2025, 1, 31, 9, 30, tzinfo=zone), "timestamptz"),
            (datetime.timedelta(days=3, seconds=7), "interval"),
            (uuid.UUID("9b2a4c1e-0000-4000-8000-000000000001"), "uuid"),
            (["a", "b,c", "{d}", 'e"f\\', None], "text[]"),
            ([[1, 2], [3, 4]], "int[]"),
            ({"a": "1", "b": None}, "hstore"),
            (psycopg2.extras.NumericRange(1, 5), "int4range"),
            ("happy", "mood"),
        ]:
            with self.subTest(as_type):
                self.assertEqual(self.value("SELECT %s::" + as_type, [value]), value)
        self.assertEqual(bytes(self.value("SELECT %s", [psycopg2.Binary(bytes(range(256)))])), bytes(range(256)))
        self.assertEqual(self.value("SELECT %s::jsonb", [psycopg2.extras.Json({"a": [1, None]})]), {"a": [1, None]})
        self.assertEqual(tuple(self.value("SELECT (1, 2, 'three')::point3")), (1, 2, "three"))

    def test_speaks_latin1(self):
        self.connection.set_client_encoding("LATIN1")
        self.assertEqual(self.value("SELECT 'grün'"), "grün")
        self.assertEqual(self.value("SELECT octet_length('grün'::text)"), 5)
        with self.assertRaises(errors.UntranslatableCharacter):
            self.value("SELECT chr(8364)")
        self.connection.rollback()
        self.connection.set_client_encoding("UTF8")
        self.assertEqual(self.value("SELECT chr(8364)"), "€")

    def test_commits_and_rolls_back(self):
        self.cursor.execute("CREATE TABLE notes (body text PRIMARY KEY)")
        self.connection.commit()
        with self.connection:
            self.cursor.execute("INSERT INTO notes VALUES ('kept')")
        with self.assertRaises(errors.UniqueViolation) as raised, self.connection:
            self.cursor.execute("INSERT INTO notes VALUES ('dropped')")
            self.cursor.execute("INSERT INTO notes VALUES ('kept')")
        diagnostics = raised.exception.diag
        self.assertEqual(raised.exception.pgcode, "23505")
        self.assertEqual(diagnostics.constraint_name, "notes_pkey")
        self.assertEqual(diagnostics.table_name, "notes")
        self.assertEqual(diagnostics.message_detail, "Key (body)=(kept) already exists.")
        self.cursor.execute("SAVEPOINT here; INSERT INTO notes VALUES ('dropped'); ROLLBACK TO here")
        self.cursor.execute("SELECT body FROM notes")
        self.assertEqual(self.cursor.fetchall(), [("kept",)])

    def test_tells_the_state_of_its_transaction(self):
        states = [self.connection.get_transaction_status()]
        self.cursor.execute("SELECT 1")
        states.append(self.connection.get_transaction_status())
        with self.assertRaises(errors.DivisionByZero):
            self.cursor.execute("SELECT 1 / 0")
        states.append(self.connection.get_transaction_status())
        with self.assertRaises(errors.InFailedSqlTransaction):
            self.cursor.execute("SELECT 1")
        self.connection.rollback()
        states.append(self.connection.get_transaction_status())
        self.assertEqual(states, [0, 2, 3, 0])

    def test_reports_errors_with_code_and_position(self):
        for query, code in [
            ("SELEC 1", "42601"),
            ("SELECT nowhere", "42703"),
            ("SELECT * FROM nowhere", "42P01"),
            ("SELECT 'x'::int", "22P02"),
            ("COPY nowhere FROM '/etc/passwd'", "42501"),
            ("CREATE ROLE other", "42501"),
        ]:
            with self.subTest(query), self.assertRaises(psycopg2.Error) as raised:
                self.cursor.execute(query)
            self.assertEqual(raised.exception.pgcode, code)
            self.connection.rollback()
        with self.assertRaises(errors.UndefinedColumn) as raised:
            self.cursor.execute("SELECT 1,\n  nowhere")
        self.assertIn("LINE 2:   nowhere\n          ^", str(raised.exception))

    def test_sets_how_transactions_are_isolated(self):
        self.connection.rollback()
        self.connection.set_session(isolation_level="SERIALIZABLE", readonly=True, deferrable=True)
        self.assertEqual(self.value("SHOW transaction_isolation"), "serializable")
        with self.assertRaises(errors.ReadOnlySqlTransaction):
            self.cursor.execute("CREATE TABLE t ()")
        self.connection.rollback()
        self.connection.set_session(isolation_level="DEFAULT", readonly=False, deferrable=False, autocommit=True)
        self.assertEqual(self.value("SHOW transaction_isolation"), "read committed")
        self.cursor.execute("SET default_transaction_isolation TO 'repeatable read'")
        self.assertEqual(self.value("SHOW transaction_isolation"), "repeatable read")

    def test_runs_outside_transactions_what_must(self):
        self.connection.autocommit = True
        self.cursor.execute("CREATE TABLE t (n int)")
        self.cursor.execute("CREATE INDEX CONCURRENTLY by_n ON t (n)")
        self.cursor.execute("VACUUM ANALYZE t")
        with self.assertRaises(errors.ActiveSqlTransaction):
            self.cursor.execute("SELECT 1; VACUUM t")

    def test_reads_by_cursors_of_the_server(self):
        with self.connection.cursor("numbers") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT generate_series(1, 1000)")
            self.assertEqual(sum(n for (n,) in cursor), 500500)
        with self.connection.cursor("back", scrollable=True) as cursor:
            cursor.execute("SELECT generate_series(1, 10)")
            cursor.scroll(5)
            self.assertEqual(cursor.fetchmany(2), [(6,), (7,)])
            cursor.scroll(-4)
            self.assertEqual(cursor.fetchone(), (4,))

    def test_keeps_cursors_that_outlive_their_transaction(self):
        kept = self.connection.cursor("kept", withhold=True)
        kept.execute("SELECT generate_series(1, 3)")
        self.assertEqual(kept.fetchone(), (1,))
        self.connection.commit()
        self.assertEqual(kept.fetchall(), [(2,), (3,)])
        kept.close()

    def test_copies_in_and_out(self):
        self.cursor.execute("CREATE TABLE people (id int, name text)")
        lines = "".join(f"{n}\tname {n}\n" for n in range(20000))
        self.cursor.copy_expert("COPY people FROM STDIN", io.StringIO(lines))
        out = io.StringIO()
        self.cursor.copy_expert("COPY (SELECT * FROM people ORDER BY id) TO STDOUT", out)
        self.assertEqual(out.getvalue(), lines)
        self.connection.commit()
        with self.assertRaises(errors.InvalidTextRepresentation) as raised:
            self.cursor.copy_expert("COPY people FROM STDIN", io.StringIO("1\ta\nx\tb\n" + lines))
        self.assertIn("COPY people, line 2, column id", raised.exception.diag.context)
        self.connection.rollback()

        class Broken(io.StringIO):
            def read(self, size=-1):
                raise OSError("no more")

        with self.assertRaisesRegex(errors.QueryCanceled, "COPY from stdin failed: error in .read"):
            self.cursor.copy_expert("COPY people FROM STDIN", Broken())
        self.connection.rollback()
        self.assertEqual(self.value("SELECT 1"), 1)

    def test_inserts_in_bulk(self):
        self.cursor.execute("CREATE TABLE people (id serial, name text)")
        rows = [(f"name {n}",) for n in range(1000)]
        ids = psycopg2.extras.execute_values(self.cursor, "INSERT INTO people (name) VALUES %s RETURNING id", rows, page_size=300, fetch=True)
        self.assertEqual([row[0] for row in ids], list(range(1, 1001)))
        psycopg2.extras.execute_batch(self.cursor, "UPDATE people SET name = %s WHERE id = %s", [("x", n) for n in range(1, 500)])
        self.assertEqual(self.value("SELECT count(*) FROM people WHERE name = 'x'"), 499)

    def test_listens_to_other_sessions(self):
        self.connection.autocommit = True
        self.cursor.execute("LISTEN news")
        with closing(psycopg2.connect("")) as other, other, other.cursor() as cursor:
            cursor.execute("SELECT pg_notify('news', 'extra'), pg_backend_pid()")
            sender = cursor.fetchone()[1]
            self.assertEqual(sender, other.get_backend_pid())
        self.assertTrue(select.select([self.connection], [], [], 10)[0])
        self.connection.poll()
        self.assertEqual([(n.channel, n.payload, n.pid) for n in self.connection.notifies], [("news", "extra", sender)])

    def test_collects_notices(self):
        self.cursor.execute("DO $$ BEGIN RAISE NOTICE 'by the way'; RAISE WARNING 'careful'; END $$")
        self.assertEqual(self.connection.notices, ["NOTICE:  by the way\n", "WARNING:  careful\n"])

    def test_keeps_large_objects(self):
        large = self.connection.lobject(0, "wb")
        content = bytes(range(256)) * 4096
        large.write(content)
        large.close()
        self.connection.commit()
        again = self.connection.lobject(large.oid, "rb")
        again.seek(256)
        self.assertEqual(again.read(), content[256:])
        again.unlink()
        self.connection.commit()
        with self.assertRaises(psycopg2.OperationalError):
            self.connection.lobject(large.oid, "rb")

    def test_keeps_what_a_session_keeps(self):
        self.connection.autocommit = True
        self.cursor.execute("CREATE TEMP TABLE mine AS SELECT 7 AS n")
        self.cursor.execute("SET statement_timeout = '5s'")
        self.cursor.execute("PREPARE twice AS SELECT $1::int * 2")
        self.assertEqual(self.value("SELECT n FROM mine"), 7)
        self.assertEqual(self.value("EXECUTE twice(21)"), 42)
        self.assertEqual(self.value("SHOW statement_timeout"), "5s")
        self.connection.reset()
        self.connection.autocommit = True
        self.assertEqual(self.value("SHOW statement_timeout"), "0")
        with self.assertRaises(errors.UndefinedTable):
            self.cursor.execute("SELECT n FROM mine")

    def test_is_cancelled_by_another_thread(self):
        pid = self.connection.get_backend_pid()
        with closing(psycopg2.connect("")) as watcher, watcher.cursor() as cursor:
            watcher.autocommit = True

            def cancel_when_it_runs():
                free = True
                while free:
                    cursor.execute("SELECT pg_try_advisory_xact_lock(4711)")
                    free = cursor.fetchone()[0]
                self.connection.cancel()

            thread = threading.Thread(target=cancel_when_it_runs)
            thread.start()
            with self.assertRaises(errors.QueryCanceled) as raised:
                self.cursor.execute("SELECT pg_advisory_xact_lock(4711); SELECT pg_sleep(60)")
            thread.join()
        self.assertEqual(raised.exception.pgcode, "57014")
        self.connection.rollback()
        self.assertEqual(self.value("SELECT pg_backend_pid()"), pid)

    def test_waits_without_blocking(self):
        with closing(psycopg2.connect("", async_=True)) as connection:
            psycopg2.extras.wait_select(connection)
            cursor = connection.cursor()
            cursor.execute("SELECT pg_sleep(0.05), 42")
            psycopg2.extras.wait_select(connection)
            self.assertEqual(cursor.fetchone()[1], 42)

    def test_shares_few_backends_among_many_threads(self):
        self.cursor.execute("CREATE TABLE counters (name text PRIMARY KEY, n int); INSERT INTO counters VALUES ('all', 0)")
        self.connection.commit()
        pool = ThreadedConnectionPool(20, 20, "")

        def count(worker):
            for turn in range(10):
                connection = pool.getconn()
                with connection, connection.cursor() as cursor:
                    cursor.execute("SET application_name = %s", [f"worker {worker}"])
                    cursor.execute("UPDATE counters SET n = n + 1 WHERE name = 'all'")
                    cursor.execute("SELECT %s, current_setting('application_name')", [worker * 100 + turn])
                    self.assertEqual(cursor.fetchone(), (worker * 100 + turn, f"worker {worker}"))
                pool.putconn(connection)

        with ThreadPoolExecutor(20) as workers:
            list(workers.map(count, range(20)))
        pool.closeall()
        self.assertEqual(self.value("SELECT n FROM counters"), 200)

    def test_migrates_in_one_script(self):
        self.cursor.execute(
            """CREATE TABLE authors (id bigserial PRIMARY KEY, name text NOT NULL);
               CREATE TABLE books (id bigserial PRIMARY KEY, author bigint REFERENCES authors, data jsonb);
               CREATE INDEX ON books USING gin (data);
               CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END $$;
               CREATE TRIGGER shouted BEFORE INSERT ON authors FOR EACH ROW EXECUTE FUNCTION shout();
               INSERT INTO authors (name) VALUES ('ada');"""
        )
        self.connection.commit()
        self.assertEqual(self.value("SELECT name FROM authors"), "ADA")
        with self.assertRaises(errors.ForeignKeyViolation) as raised:
            self.cursor.execute("INSERT INTO books (author, data) VALUES (7, %s)", [json.dumps({})])
        self.assertEqual(raised.exception.diag.constraint_name, "books_author_fkey")
