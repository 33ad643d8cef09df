"""Django over psycopg 2: its migrations, its introspection, its models."""

import contextlib
import datetime
import importlib
import io
import os
import sys
import tempfile
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import django
from django.conf import settings

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["PGDATABASE"],
            "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ["PGPASSWORD"],
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
        }
    },
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "library"],
    MIGRATION_MODULES={"library": "library_migrations"},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection, connections, models, transaction
from django.db.models import F
from library.models import Author, Book


class Django(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        sys.path.insert(0, folder)
        os.mkdir(os.path.join(folder, "library_migrations"))
        with open(os.path.join(folder, "library_migrations", "__init__.py"), "w"):
            importlib.invalidate_caches()

    def setUp(self):
        self.addCleanup(connection.close)
        with connection.cursor() as cursor:
            cursor.execute(os.environ["EMPTY_PLACE"])

    def create_tables(self):
        with connection.schema_editor() as editor:
            editor.create_model(Author)
            editor.create_model(Book)

    def test_migrates_its_own_applications(self):
        said = io.StringIO()
        call_command("migrate", stdout=said)
        self.assertIn("Applying auth.0012_alter_user_first_name_max_length... OK", said.getvalue())
        call_command("migrate", "auth", "0008", verbosity=0)
        call_command("migrate", verbosity=0)
        user = User.objects.create_user("ada", "ada@acme.test", "secret")
        user.groups.add(Group.objects.create(name="readers"))
        self.assertEqual(User.objects.get(groups__name="readers").username, "ada")
        call_command("migrate", "auth", "zero", verbosity=0)
        self.assertNotIn("auth_user", connection.introspection.table_names())

    def test_makes_migrations_of_models(self):
        call_command("makemigrations", "library", verbosity=0)
        call_command("migrate", verbosity=0)
        said = io.StringIO()
        call_command("makemigrations", check=True, stdout=said)
        call_command("migrate", stdout=said)
        self.assertIn("No changes detected", said.getvalue())
        self.assertIn("No migrations to apply.", said.getvalue())
        Book.objects.create(author=Author.objects.create(name="Ada"))
        call_command("flush", interactive=False, verbosity=0)
        self.assertFalse(Book.objects.exists())
        call_command("migrate", "library", "zero", verbosity=0)
        self.assertNotIn("library_book", connection.introspection.table_names())

    def test_finds_tables_as_they_are(self):
        self.create_tables()
        found = io.StringIO()
        call_command("inspectdb", stdout=found)
        for expected in [
            "class LibraryBook(models.Model):",
            "author = models.ForeignKey(LibraryAuthor, models.DO_NOTHING)",
            "price = models.DecimalField(max_digits=12, decimal_places=2, blank=True, null=True)",
            "data = models.JSONField(blank=True, null=True)",
            "name = models.TextField(unique=True)",
        ]:
            self.assertIn(expected, found.getvalue())
        with connection.cursor() as cursor:
            constraints = connection.introspection.get_constraints(cursor, "library_book")
            self.assertEqual(constraints["affordable"]["columns"], ["price"])
            self.assertEqual(connection.introspection.get_sequences(cursor, "library_book")[0]["column"], "id")

    def test_changes_tables(self):
        self.create_tables()
        wider = models.CharField(max_length=200, default="?")
        wider.set_attributes_from_name("name")
        note = models.TextField(default="none")
        note.set_attributes_from_name("note")
        with connection.schema_editor() as editor:
            editor.alter_field(Author, Author._meta.get_field("name"), wider)
            editor.add_field(Author, note)
            editor.alter_db_table(Author, "library_author", "library_people")
            editor.delete_model(Book)
        self.assertEqual(connection.introspection.table_names(), ["library_people"])

    def test_keeps_objects_with_values_of_many_types(self):
        self.create_tables()
        ada = Author.objects.create(name="Ada")
        values = {
            "price": Decimal("1234567890.12"),
            "key": uuid.UUID("9b2a4c1e-0000-4000-8000-000000000001"),
            "data": {"a": [1, None, {"b": "public.c"}]},
            "tags": ["a", "b,c", 'd"e'],
            "lent_for": datetime.timedelta(days=3, seconds=7),
            "printed_at": datetime.datetime(2025, 1, 31, 9, 30, 0, 123456, tzinfo=datetime.timezone.utc),
        }
        Book.objects.create(author=ada, cover=bytes(range(256)), **values)
        book = Book.objects.select_related("author").get(data__a__contains=[1], tags__contains=["b,c"])
        self.assertEqual({name: getattr(book, name) for name in values}, values)
        self.assertEqual((bytes(book.cover), book.author.name), (bytes(range(256)), "Ada"))
        Book.objects.bulk_create([Book(author=ada, price=n) for n in range(1000)], batch_size=300)
        self.assertEqual(sum(book.price for book in Book.objects.filter(price__lt=1000).iterator(chunk_size=100)), 499500)
        self.assertEqual(ada.delete()[0], 1002)

    def test_nests_transactions_and_reports_errors(self):
        self.create_tables()
        with transaction.atomic():
            Author.objects.create(name="Ada")
            with self.assertRaises(IntegrityError) as raised, transaction.atomic():
                Author.objects.create(name="Ada")
            self.assertEqual(raised.exception.__cause__.pgcode, "23505")
            locked = Author.objects.select_for_update().get()
            with self.assertRaises(IntegrityError) as raised, transaction.atomic():
                Book.objects.create(author=locked, price=-1)
            self.assertEqual(raised.exception.__cause__.pgcode, "23514")
        self.assertEqual(list(Author.objects.values_list("name", flat=True)), ["Ada"])
        # Foreign keys are checked at the end.
        with self.assertRaises(IntegrityError) as raised, transaction.atomic():
            Book.objects.create(author_id=999)
        self.assertEqual(raised.exception.__cause__.pgcode, "23503")

    def test_gives_up_when_it_is_told_to(self):
        with connection.cursor() as cursor:
            with self.assertRaises(OperationalError) as raised, transaction.atomic():
                cursor.execute("SET LOCAL statement_timeout = 50; SELECT pg_sleep(60)")
            self.assertEqual(raised.exception.__cause__.pgcode, "57014")
            cursor.execute("SHOW statement_timeout")
            self.assertEqual(cursor.fetchone(), ("0",))

    def test_shares_few_backends_among_many_threads(self):
        self.create_tables()
        ada = Author.objects.create(name="Ada")

        def work(_):
            with contextlib.closing(connections["default"]):
                for _ in range(5):
                    with transaction.atomic():
                        locked = Author.objects.select_for_update().get(pk=ada.pk)
                        Book.objects.create(author=locked, price=0)
                        Book.objects.filter(author=locked).update(price=F("price") + 1)

        with ThreadPoolExecutor(12) as workers:
            list(workers.map(work, range(12)))
        self.assertEqual(sorted(Book.objects.values_list("price", flat=True)), list(range(1, 61)))
