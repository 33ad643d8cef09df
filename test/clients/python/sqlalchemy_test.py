"""SQLAlchemy over psycopg 2 and over asyncpg, with Alembic for its migrations."""

import asyncio
import datetime
import enum
import os
import tempfile
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

Base = orm.declarative_base()


class Mood(enum.Enum):
    sad = 1
    happy = 2


class Author(Base):
    __tablename__ = "authors"
    id = sa.Column(sa.BigInteger, sa.Identity(), primary_key=True)
    name = sa.Column(sa.Text, nullable=False, unique=True)
    books = orm.relationship("Book", back_populates="author", order_by="Book.id", passive_deletes="all")


class Book(Base):
    __tablename__ = "books"
    __table_args__ = (sa.CheckConstraint("price >= 0", name="affordable"), sa.Index("by_data", "data", postgresql_using="gin"))
    id = sa.Column(sa.Integer, primary_key=True)
    author_id = sa.Column(sa.ForeignKey("authors.id", ondelete="CASCADE"), nullable=False)
    author = orm.relationship(Author, back_populates="books")
    price = sa.Column(sa.Numeric(12, 2))
    mood = sa.Column(sa.Enum(Mood, name="mood"))
    key = sa.Column(pg.UUID(as_uuid=True), default=uuid.uuid4)
    data = sa.Column(pg.JSONB)
    tags = sa.Column(pg.ARRAY(sa.Text))
    cover = sa.Column(sa.LargeBinary)
    lent_for = sa.Column(sa.Interval)
    printed_at = sa.Column(sa.DateTime(timezone=True), server_default=sa.func.now())
    on_sale = sa.Column(pg.DATERANGE)


class SqlAlchemy(unittest.TestCase):
    def setUp(self):
        self.engine = sa.create_engine("postgresql+psycopg2://", pool_size=10, max_overflow=10)
        self.addCleanup(self.engine.dispose)
        with self.engine.begin() as connection:
            connection.execute(sa.text(os.environ["EMPTY_PLACE"]))

    def session(self):
        return orm.Session(self.engine, future=True)

    def test_creates_tables_and_finds_them_as_they_are(self):
        Base.metadata.create_all(self.engine)
        Base.metadata.create_all(self.engine)
        inspector = sa.inspect(self.engine)
        self.assertEqual(sorted(inspector.get_table_names()), ["authors", "books"])
        self.assertEqual(inspector.get_enums()[0]["labels"], ["sad", "happy"])
        self.assertEqual([c["name"] for c in inspector.get_check_constraints("books")], ["affordable"])
        self.assertEqual(inspector.get_foreign_keys("books")[0]["options"], {"ondelete": "CASCADE"})
        self.assertIsInstance(inspector.get_columns("books")[5]["type"], pg.JSONB)
        reflected = sa.MetaData()
        reflected.reflect(self.engine)
        self.assertEqual(set(reflected.tables["books"].c.keys()), set(Book.__table__.c.keys()))
        with self.engine.connect() as connection:
            self.assertEqual(compare_metadata(MigrationContext.configure(connection), Base.metadata), [])
        Base.metadata.drop_all(self.engine)
        self.assertEqual(sa.inspect(self.engine).get_table_names(), [])

    def test_keeps_objects_with_values_of_many_types(self):
        Base.metadata.create_all(self.engine)
        printed = datetime.datetime(2025, 1, 31, 9, 30, 0, 123456, tzinfo=datetime.timezone.utc)
        values = {
            "price": Decimal("1234567890.12"),
            "mood": Mood.happy,
            "key": uuid.UUID("9b2a4c1e-0000-4000-8000-000000000001"),
            "data": {"a": [1, None, {"b": "c"}]},
            "tags": ["a", "b,c", 'd"e'],
            "cover": bytes(range(256)),
            "lent_for": datetime.timedelta(days=3, seconds=7),
            "printed_at": printed,
        }
        with self.session() as session:
            session.add(Author(name="Ada", books=[Book(**values), Book(price=1)]))
            session.commit()
        with self.session() as session:
            ada = session.execute(sa.select(Author).options(orm.selectinload(Author.books))).scalar_one()
            book = ada.books[0]
            self.assertEqual({name: getattr(book, name) for name in values}, values)
            matching = sa.select(Book.id).where(Book.data.contains({"a": [1]}), Book.tags.any("b,c"))
            self.assertEqual(session.execute(matching).scalars().all(), [book.id])
            session.delete(ada)
            session.commit()
            self.assertEqual(session.execute(sa.select(sa.func.count()).select_from(Book)).scalar(), 0)

    def test_inserts_in_bulk_and_over_what_is_there(self):
        Base.metadata.create_all(self.engine)
        with self.session() as session:
            session.bulk_save_objects([Author(name=f"name {n}") for n in range(2000)], return_defaults=True)
            insert = pg.insert(Author).values(name="name 7")
            insert = insert.on_conflict_do_update(index_elements=["name"], set_={"name": insert.excluded.name + "!"}).returning(Author.name)
            self.assertEqual(session.execute(insert).scalar_one(), "name 7!")
            session.commit()
        with self.engine.connect() as connection:
            rows = connection.execution_options(stream_results=True, max_row_buffer=100).execute(sa.select(Author.__table__))
            self.assertEqual(sum(len(part) for part in rows.partitions(300)), 2000)

    def test_nests_transactions_and_reports_errors(self):
        Base.metadata.create_all(self.engine)
        with self.session() as session:
            session.add(Author(name="Ada"))
            session.flush()
            for wrong, code in [
                (Author(name="Ada"), "23505"),
                (Author(name=None), "23502"),
                (Book(author_id=999), "23503"),
                (Book(author=session.query(Author).one(), price=-1), "23514"),
            ]:
                with self.assertRaises(sa.exc.IntegrityError) as raised, session.begin_nested():
                    session.add(wrong)
                self.assertEqual(raised.exception.orig.pgcode, code)
            session.commit()
            self.assertEqual(session.execute(sa.select(Author.name)).scalars().all(), ["Ada"])
        with self.assertRaises(sa.exc.ProgrammingError) as raised, self.engine.connect() as connection:
            connection.execute(sa.text("SELECT nowhere"))
        self.assertEqual(raised.exception.orig.pgcode, "42703")

    def test_isolates_as_it_is_told(self):
        levels = ["SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED"]
        for level in levels * 2:
            with self.engine.connect().execution_options(isolation_level=level) as connection:
                self.assertEqual(connection.execute(sa.text("SHOW transaction_isolation")).scalar(), level.lower())
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("CREATE TABLE t (n int)"))
            connection.execute(sa.text("CREATE INDEX CONCURRENTLY ON t (n)"))
            connection.execute(sa.text("VACUUM t"))

    def test_gives_up_when_it_is_told_to(self):
        engine = sa.create_engine("postgresql+psycopg2://", connect_args={"options": "-c statement_timeout=50"})
        self.addCleanup(engine.dispose)
        with self.assertRaises(sa.exc.OperationalError) as raised, engine.connect() as connection:
            connection.execute(sa.text("SELECT pg_sleep(60)"))
        self.assertEqual(raised.exception.orig.pgcode, "57014")

    def test_shares_few_backends_among_many_threads(self):
        Base.metadata.create_all(self.engine)

        def work(worker):
            for turn in range(5):
                with self.session() as session:
                    session.add(Author(name=f"{worker}/{turn}"))
                    session.flush()
                    session.execute(sa.text("SET LOCAL application_name = :name"), {"name": f"worker {worker}"})
                    session.commit()
                    self.assertEqual(session.execute(sa.text("SHOW application_name")).scalar(), "")

        with ThreadPoolExecutor(20) as workers:
            list(workers.map(work, range(20)))
        with self.session() as session:
            self.assertEqual(session.query(Author).count(), 100)

    def test_works_over_asyncpg(self):
        async def main():
            engine = create_async_engine("postgresql+asyncpg://" + address(), pool_size=5)
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)

            async def add(n):
                async with AsyncSession(engine) as session, session.begin():
                    session.add(Author(name=f"name {n}", books=[Book(price=n, tags=["a"], data={"n": n}, mood=Mood.sad)]))

            await asyncio.gather(*[add(n) for n in range(30)])
            async with AsyncSession(engine) as session:
                found = await session.execute(sa.select(sa.func.sum(Book.price), sa.func.count()).join(Author))
                self.assertEqual(found.one(), (Decimal(sum(range(30))), 30))
                with self.assertRaises(sa.exc.IntegrityError) as raised:
                    session.add(Author(name="name 7"))
                    await session.flush()
                self.assertEqual(raised.exception.orig.pgcode, "23505")
            async with engine.connect() as connection:
                names = [name async for (name,) in await connection.stream(sa.select(Author.name).order_by(Author.id))]
                self.assertEqual(len(names), 30)
            await engine.dispose()

        asyncio.run(main())

    def test_migrates_with_alembic(self):
        with tempfile.TemporaryDirectory() as folder:
            config = migrations_in(folder)
            command.upgrade(config, "head")
            columns = lambda: {column["name"] for column in sa.inspect(self.engine).get_columns("people")}
            self.assertEqual(columns(), {"id", "name", "mood"})
            with self.engine.connect() as connection:
                self.assertEqual(connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar(), "2")
                self.assertEqual(connection.execute(sa.text("SELECT mood FROM people")).scalar(), "happy")
            command.downgrade(config, "1")
            self.assertEqual(columns(), {"id", "name"})
            command.downgrade(config, "base")
            self.assertEqual(sa.inspect(self.engine).get_table_names(), ["alembic_version"])


def address():
    """asyncpg is told where to connect by the same variables, but the dialect wants a host."""
    return "{PGUSER}:{PGPASSWORD}@{PGHOST}:{PGPORT}/{PGDATABASE}".format(**os.environ)


ENVIRONMENT = """
import sqlalchemy
from alembic import context

with sqlalchemy.create_engine("postgresql+psycopg2://").connect() as connection:
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
"""

FIRST = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "1", None

def upgrade():
    op.create_table("people", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text, nullable=False))
    op.execute("INSERT INTO people (name) VALUES ('Ada')")

def downgrade():
    op.drop_table("people")
"""

SECOND = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "2", "1"

def upgrade():
    sa.Enum("sad", "happy", name="temper").create(op.get_bind())
    op.add_column("people", sa.Column("mood", sa.Enum(name="temper", create_type=False), server_default="happy"))
    op.alter_column("people", "name", type_=sa.String(100))
    op.create_index("by_name", "people", ["name"], unique=True)
    with op.get_context().autocommit_block():
        op.create_index("by_mood", "people", ["mood"], postgresql_concurrently=True)

def downgrade():
    op.drop_column("people", "mood")
    op.execute("DROP TYPE temper")
"""


def migrations_in(folder):
    os.mkdir(os.path.join(folder, "versions"))
    for name, content in [("env.py", ENVIRONMENT), ("versions/1.py", FIRST), ("versions/2.py", SECOND)]:
        with open(os.path.join(folder, name), "w") as file:
            file.write(content)
    config = Config()
    config.set_main_option("script_location", folder)
    return config
