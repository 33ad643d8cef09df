import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;
import org.postgresql.util.PSQLException;

/** The JDBC driver: prepares on the server what runs five times, then in binary; batches; fetches by portal; knows every catalog. */
public class Jdbc {
  static String url;

  interface Check {
    void run(Connection connection) throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    url = arguments[0];
    check("sends and receives every kind of value", Jdbc::values);
    check("prepares on the server what repeats", Jdbc::repeats);
    check("reads each column as what it is, on a backend that did not prepare it", Jdbc::shapes);
    check("shares few backends among many connections", Jdbc::shares);
    check("commits, rolls back, and uses savepoints", Jdbc::transactions);
    check("goes on by itself after an error in a transaction", Jdbc::autosave);
    check("isolates as it is told", Jdbc::isolation);
    check("reports errors with all that is known", Jdbc::errors);
    check("sends batches", Jdbc::batches);
    check("fetches by portal", Jdbc::portals);
    check("copies in and out", Jdbc::copies);
    check("keeps large objects", Jdbc::largeObjects);
    check("hears notifications and notices", Jdbc::notifications);
    check("is cancelled, by itself and by a timeout", Jdbc::cancels);
    check("describes what is there", Jdbc::describes);
    check("keeps the schema and settings of its session", Jdbc::settings);
    check("calls functions and procedures", Jdbc::calls);
    check("migrates", Jdbc::migrates);
  }

  static void check(String name, Check check) throws Exception {
    try (Connection connection = connect("")) {
      run(connection, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
      check.run(connection);
    } catch (Throwable failure) {
      System.out.println("failed: " + name);
      failure.printStackTrace(System.out);
      System.exit(1);
    }
    System.out.println("ok: " + name);
  }

  static Connection connect(String options) throws SQLException {
    return DriverManager.getConnection(url + options);
  }

  static void values(Connection connection) throws Exception {
    run(connection, "CREATE TYPE mood AS ENUM ('sad', 'happy')");
    byte[] bytes = new byte[256];
    for (int i = 0; i < 256; i += 1) bytes[i] = (byte) i;
    Object[][] values = {
      {"int8", Long.MIN_VALUE},
      {"int4", Integer.MIN_VALUE},
      {"bool", true},
      {"float8", 1.5e300},
      {"float4", Float.POSITIVE_INFINITY},
      {"numeric", new BigDecimal("123456789012345678901234567890.123456789")},
      {"text", "äöü 😀 \\ ' \" \n ?"},
      {"bytea", bytes},
      {"date", LocalDate.of(2025, 1, 31)},
      {"timestamp", LocalDateTime.of(2025, 1, 31, 9, 30, 0, 123456000)},
      {"timestamptz", OffsetDateTime.of(2025, 1, 31, 9, 30, 0, 0, ZoneOffset.UTC)},
      {"uuid", UUID.fromString("9b2a4c1e-0000-4000-8000-000000000001")},
      {"text[]", connection.createArrayOf("text", new String[] {"a", "b,c", "{d}", "e\"f\\", null})},
      {"int[]", connection.createArrayOf("int4", new Integer[] {1, null, 3})},
    };
    for (Object[] pair : values) {
      // The sixth time, and those after it, the statement is a prepared one and the formats are binary.
      for (int turn = 0; turn < 8; turn += 1) {
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?::" + pair[0])) {
          statement.setObject(1, pair[1]);
          ResultSet result = statement.executeQuery();
          result.next();
          if (pair[1] instanceof Array) same(list((Array) pair[1]), list(result.getArray(1)));
          else if (pair[1] instanceof byte[]) same(Arrays.toString(bytes), Arrays.toString(result.getBytes(1)));
          else same(pair[1], result.getObject(1, pair[1].getClass()));
        }
      }
    }
    same("happy", one(connection, "SELECT ?::mood", "happy"));
    same("{\"a\": [1, null]}", one(connection, "SELECT ?::jsonb::text", "{\"a\": [1,null]}"));
    same(null, one(connection, "SELECT ?::int", (Object) null));
  }

  static void repeats(Connection connection) throws Exception {
    run(connection, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    PreparedStatement statement = connection.prepareStatement("SELECT a + ? FROM t");
    for (int n = 0; n < 50; n += 1) {
      statement.setInt(1, n);
      ResultSet result = statement.executeQuery();
      result.next();
      same(n + 1, result.getInt(1));
    }
    // Statements are closed, or fall out of the driver's cache, and are prepared again under other names.
    for (int n = 0; n < 300; n += 1) for (int turn = 0; turn < 6; turn += 1) same(n, one(connection, "SELECT " + n));
  }

  static void shapes(Connection connection) throws Exception {
    run(connection, "CREATE TABLE bills AS SELECT 1 AS id, 100 AS paid, 900 AS due");
    List<Connection> others = new ArrayList<>();
    for (int n = 0; n < 4; n += 1) others.add(connect(""));
    for (Connection other : others.subList(0, 3)) run(other, "BEGIN");
    Connection own = connect("&prepareThreshold=1");
    PreparedStatement statement = own.prepareStatement("SELECT * FROM bills");
    bill(statement);
    // The backend that has prepared it is taken now, and another is free.
    run(others.get(3), "BEGIN");
    run(others.get(0), "ROLLBACK");
    run(others.get(0), "ALTER TABLE bills DROP paid; ALTER TABLE bills ADD paid int DEFAULT 100");
    try {
      bill(statement);
    } catch (SQLException told) {
      same("0A000", told.getSQLState());
    }
    for (int turn = 0; turn < 3; turn += 1) bill(statement);
    own.close();
    for (Connection other : others) other.close();
  }

  static void bill(PreparedStatement statement) throws SQLException {
    ResultSet result = statement.executeQuery();
    result.next();
    same(1, result.getInt("id"));
    same(100, result.getInt("paid"));
    same(900, result.getInt("due"));
  }

  static void shares(Connection connection) throws Exception {
    run(connection, "CREATE TABLE counters (name text PRIMARY KEY, n int); INSERT INTO counters VALUES ('all', 0)");
    var workers = Executors.newFixedThreadPool(16);
    List<Future<Void>> done = new ArrayList<>();
    for (int i = 0; i < 16; i += 1) {
      int worker = i;
      Callable<Void> work = () -> {
        try (Connection own = connect("&prepareThreshold=1&ApplicationName=worker" + worker)) {
          for (int turn = 0; turn < 20; turn += 1) {
            // The driver calls its statements S_1, S_2, … on each connection.
            String sum = worker % 2 == 0 ? "SELECT ?::int + 1" : "SELECT ?::int - 1";
            same(turn + (worker % 2 == 0 ? 1 : -1), one(own, sum, turn));
            own.setAutoCommit(false);
            try (PreparedStatement update = own.prepareStatement("UPDATE counters SET n = n + ? WHERE name = ?")) {
              update.setInt(1, 1);
              update.setString(2, "all");
              same(1, update.executeUpdate());
            }
            same("worker" + worker, one(own, "SHOW application_name"));
            own.commit();
            own.setAutoCommit(true);
          }
        }
        return null;
      };
      done.add(workers.submit(work));
    }
    for (Future<Void> each : done) each.get();
    workers.shutdown();
    same(320, one(connection, "SELECT n FROM counters"));
  }

  static void transactions(Connection connection) throws Exception {
    run(connection, "CREATE TABLE notes (body text PRIMARY KEY)");
    connection.setAutoCommit(false);
    run(connection, "INSERT INTO notes VALUES ('kept')");
    Savepoint here = connection.setSavepoint("here");
    sqlState("23505", () -> run(connection, "INSERT INTO notes VALUES ('kept')"));
    sqlState("25P02", () -> run(connection, "SELECT 1"));
    connection.rollback(here);
    run(connection, "INSERT INTO notes VALUES ('kept too')");
    connection.releaseSavepoint(here);
    connection.commit();
    run(connection, "INSERT INTO notes VALUES ('dropped')");
    connection.rollback();
    connection.setAutoCommit(true);
    same("kept,kept too", one(connection, "SELECT string_agg(body, ',' ORDER BY body) FROM notes"));
  }

  static void autosave(Connection unused) throws Exception {
    try (Connection connection = connect("&autosave=always")) {
      run(connection, "CREATE TABLE notes (body text PRIMARY KEY)");
      connection.setAutoCommit(false);
      for (int turn = 0; turn < 10; turn += 1) {
        same(turn, one(connection, "SELECT ?::int", turn));
        sqlState("22012", () -> one(connection, "SELECT 1 / ?", 0));
      }
      run(connection, "INSERT INTO notes VALUES ('kept')");
      connection.commit();
      same(1L, one(connection, "SELECT count(*) FROM notes"));
      connection.commit();
    }
  }

  static void isolation(Connection connection) throws Exception {
    connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
    connection.setReadOnly(true);
    connection.setAutoCommit(false);
    same("serializable", one(connection, "SHOW transaction_isolation"));
    sqlState("25006", () -> run(connection, "CREATE TABLE t ()"));
    connection.rollback();
    connection.setReadOnly(false);
    connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
    same("read committed", one(connection, "SHOW transaction_isolation"));
    connection.rollback();
    connection.setAutoCommit(true);
    same(Connection.TRANSACTION_READ_COMMITTED, connection.getTransactionIsolation());
  }

  static void errors(Connection connection) throws Exception {
    run(connection, "CREATE TABLE people (age int CONSTRAINT grown CHECK (age > 17) NOT NULL)");
    SQLException failure = sqlState("23514", () -> one(connection, "INSERT INTO people VALUES (?)", 3));
    var known = ((PSQLException) failure).getServerErrorMessage();
    same("grown", known.getConstraint());
    same("people", known.getTable());
    same("Failing row contains (3).", known.getDetail());
    failure = sqlState("42703", () -> run(connection, "SELECT 1, nowhere"));
    same(11, ((PSQLException) failure).getServerErrorMessage().getPosition());
    sqlState("42601", () -> run(connection, "SELEC"));
    sqlState("22P02", () -> one(connection, "SELECT ?::text::int", "x"));
    sqlState("28P01", () -> DriverManager.getConnection(url.replace("password=", "password=x")));
  }

  static void batches(Connection connection) throws Exception {
    run(connection, "CREATE TABLE people (id serial PRIMARY KEY, name text NOT NULL)");
    try (PreparedStatement insert = connection.prepareStatement("INSERT INTO people (name) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
      for (int n = 0; n < 1000; n += 1) {
        insert.setString(1, "name " + n);
        insert.addBatch();
      }
      same(1000, insert.executeBatch().length);
      ResultSet keys = insert.getGeneratedKeys();
      for (int n = 1; n <= 1000; n += 1) {
        keys.next();
        same(n, keys.getInt(1));
      }
      insert.setString(1, "good");
      insert.addBatch();
      insert.setString(1, null);
      insert.addBatch();
      BatchUpdateException failure = (BatchUpdateException) sqlState("23502", insert::executeBatch);
      same(2, failure.getUpdateCounts().length);
    }
    try (Connection rewriting = connect("&reWriteBatchedInserts=true");
        PreparedStatement insert = rewriting.prepareStatement("INSERT INTO people (name) VALUES (?)")) {
      for (int n = 0; n < 1000; n += 1) {
        insert.setString(1, "rewritten");
        insert.addBatch();
      }
      insert.executeBatch();
    }
    same(1000L, one(connection, "SELECT count(*) FROM people WHERE name = 'rewritten'"));
  }

  static void portals(Connection connection) throws Exception {
    connection.setAutoCommit(false);
    try (PreparedStatement statement = connection.prepareStatement("SELECT generate_series(1, ?)")) {
      statement.setFetchSize(100);
      for (int turn = 0; turn < 7; turn += 1) {
        statement.setInt(1, 1000);
        long sum = 0;
        try (ResultSet result = statement.executeQuery()) {
          while (result.next()) sum += result.getInt(1);
        }
        same(500500L, sum);
      }
    }
    connection.commit();
    connection.setAutoCommit(true);
    Statement scrolling = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
    ResultSet result = scrolling.executeQuery("SELECT generate_series(1, 10)");
    result.last();
    same(10, result.getInt(1));
    result.absolute(3);
    same(3, result.getInt(1));
  }

  static void copies(Connection connection) throws Exception {
    run(connection, "CREATE TABLE people (id int, name text)");
    CopyManager copy = connection.unwrap(PGConnection.class).getCopyAPI();
    StringBuilder lines = new StringBuilder();
    for (int n = 0; n < 10000; n += 1) lines.append(n).append(",name ").append(n).append('\n');
    same(10000L, copy.copyIn("COPY people FROM STDIN CSV", new StringReader(lines.toString())));
    StringWriter out = new StringWriter();
    copy.copyOut("COPY (SELECT * FROM people ORDER BY id) TO STDOUT CSV", out);
    same(lines.toString(), out.toString());
    sqlState("22P02", () -> copy.copyIn("COPY people FROM STDIN CSV", new StringReader("1,a\nx,b\n")));
    var unfinished = copy.copyIn("COPY people FROM STDIN CSV");
    unfinished.writeToCopy("1,a\n".getBytes(), 0, 4);
    unfinished.cancelCopy();
    ByteArrayOutputStream binary = new ByteArrayOutputStream();
    copy.copyOut("COPY people TO STDOUT (FORMAT binary)", binary);
    same("PGCOPY", binary.toString("latin1").substring(0, 6));
    same(10000L, one(connection, "SELECT count(*) FROM people"));
  }

  static void largeObjects(Connection connection) throws Exception {
    connection.setAutoCommit(false);
    LargeObjectManager manager = connection.unwrap(PGConnection.class).getLargeObjectAPI();
    long id = manager.createLO(LargeObjectManager.READ | LargeObjectManager.WRITE);
    byte[] content = new byte[1 << 20];
    for (int i = 0; i < content.length; i += 1) content[i] = (byte) (i * 31);
    LargeObject object = manager.open(id, LargeObjectManager.WRITE);
    object.write(content);
    object.close();
    connection.commit();
    object = manager.open(id, LargeObjectManager.READ);
    same(content.length, object.size());
    object.seek(1000);
    same(Arrays.hashCode(Arrays.copyOfRange(content, 1000, 51000)), Arrays.hashCode(object.read(50000)));
    object.close();
    manager.delete(id);
    connection.commit();
    connection.setAutoCommit(true);
  }

  static void notifications(Connection connection) throws Exception {
    run(connection, "LISTEN news");
    try (Connection other = connect("")) {
      one(other, "SELECT pg_notify('news', ?)", "extra");
    }
    var heard = connection.unwrap(PGConnection.class).getNotifications(10000);
    same(1, heard.length);
    same("news: extra", heard[0].getName() + ": " + heard[0].getParameter());
    try (Statement statement = connection.createStatement()) {
      statement.execute("DO $$ BEGIN RAISE WARNING 'careful'; END $$");
      same("careful", statement.getWarnings().getMessage());
    }
  }

  static void cancels(Connection connection) throws Exception {
    int pid = connection.unwrap(PGConnection.class).getBackendPID();
    try (Statement statement = connection.createStatement(); Connection watcher = connect("")) {
      Thread canceller = new Thread(() -> {
        try {
          while ((boolean) one(watcher, "SELECT pg_try_advisory_xact_lock(4711)")) Thread.onSpinWait();
          statement.cancel();
        } catch (SQLException failure) {
          throw new IllegalStateException(failure);
        }
      });
      canceller.start();
      sqlState("57014", () -> statement.execute("SELECT pg_advisory_xact_lock(4711), pg_sleep(60)"));
      canceller.join();
      statement.setQueryTimeout(1);
      sqlState("57014", () -> statement.execute("SELECT pg_sleep(60)"));
      statement.execute("SELECT 1");
    }
    same(pid, one(connection, "SELECT pg_backend_pid()"));
  }

  static void describes(Connection connection) throws Exception {
    run(connection, "CREATE TABLE authors (id bigserial PRIMARY KEY, name varchar(100) NOT NULL UNIQUE);"
        + "CREATE TABLE books (id bigserial PRIMARY KEY, author bigint REFERENCES authors ON DELETE CASCADE, price numeric(12, 2));"
        + "CREATE VIEW shelf AS SELECT * FROM books");
    DatabaseMetaData known = connection.getMetaData();
    same("authors,books", column(known.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME"));
    same("shelf", column(known.getTables(null, "public", "%", new String[] {"VIEW"}), "TABLE_NAME"));
    same("id,author,price", column(known.getColumns(null, "public", "books", "%"), "COLUMN_NAME"));
    same("id", column(known.getPrimaryKeys(null, "public", "books"), "COLUMN_NAME"));
    same("authors", column(known.getImportedKeys(null, "public", "books"), "PKTABLE_NAME"));
    same("books", column(known.getExportedKeys(null, "public", "authors"), "FKTABLE_NAME"));
    same("authors_name_key,authors_pkey", column(known.getIndexInfo(null, "public", "authors", true, false), "INDEX_NAME"));
    if (!column(known.getSchemas(), "TABLE_SCHEM").contains("public")) throw new AssertionError("no schema public");
    if (!column(known.getTypeInfo(), "TYPE_NAME").contains("jsonb")) throw new AssertionError("no type jsonb");
    same(connection.getCatalog(), one(connection, "SELECT current_database()::text"));
    ResultSetMetaData columns = connection.prepareStatement("SELECT id, price FROM books WHERE id = ?").getMetaData();
    same("bigserial,numeric 12 2", columns.getColumnTypeName(1) + "," + columns.getColumnTypeName(2) + " " + columns.getPrecision(2) + " " + columns.getScale(2));
    same("int4", connection.prepareStatement("SELECT ?::int").getParameterMetaData().getParameterTypeName(1));
  }

  static void settings(Connection unused) throws Exception {
    run(unused, "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.t AS SELECT 7 AS n");
    try (Connection connection = connect("&currentSchema=elsewhere,public&ApplicationName=a%20program&options=-c%20statement_timeout=66s")) {
      same(7, one(connection, "SELECT n FROM t"));
      same("a program", one(connection, "SHOW application_name"));
      same("66s", one(connection, "SHOW statement_timeout"));
      connection.setSchema("public");
      sqlState("42P01", () -> one(connection, "SELECT n FROM t"));
      same("public", connection.getSchema());
      Properties client = new Properties();
      client.setProperty("ApplicationName", "renamed");
      connection.setClientInfo(client);
      for (int turn = 0; turn < 10; turn += 1) same("renamed", one(connection, "SHOW application_name"));
    }
    run(unused, "DROP SCHEMA elsewhere CASCADE");
  }

  static void calls(Connection connection) throws Exception {
    run(connection, "CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql AS 'SELECT n * 2';"
        + "CREATE TABLE log (n int);"
        + "CREATE PROCEDURE fill(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..3 LOOP INSERT INTO log VALUES (i); COMMIT; END LOOP; n := n + 1; END $$");
    try (CallableStatement call = connection.prepareCall("{? = call twice(?)}")) {
      call.registerOutParameter(1, Types.INTEGER);
      call.setInt(2, 21);
      call.execute();
      same(42, call.getInt(1));
    }
    try (CallableStatement call = connection.prepareCall("CALL fill(?)")) {
      call.registerOutParameter(1, Types.INTEGER);
      call.setInt(1, 1);
      call.execute();
      same(2, call.getInt(1));
    }
    same(3L, one(connection, "SELECT count(*) FROM log"));
  }

  static void migrates(Connection connection) throws Exception {
    run(connection, "CREATE TABLE schema_version (version int PRIMARY KEY, at timestamptz DEFAULT now())");
    String[] steps = {
      "CREATE TABLE people (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",
      "ALTER TABLE people ADD born date; CREATE INDEX ON people (born); COMMENT ON TABLE people IS 'all; of them'",
      "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.name := upper(NEW.name); RETURN NEW; END; $$;"
          + "CREATE TRIGGER shouted BEFORE INSERT ON people FOR EACH ROW EXECUTE FUNCTION shout()",
    };
    connection.setAutoCommit(false);
    for (int version = 0; version < steps.length; version += 1) {
      run(connection, "LOCK TABLE schema_version");
      run(connection, steps[version]);
      one(connection, "INSERT INTO schema_version VALUES (?)", version);
      connection.commit();
    }
    sqlState("42701", () -> run(connection, "CREATE TABLE gone (); ALTER TABLE people ADD name text"));
    connection.rollback();
    connection.setAutoCommit(true);
    same(null, one(connection, "SELECT to_regclass('gone')::text"));
    same("ADA", one(connection, "INSERT INTO people (name) VALUES (?) RETURNING name", "Ada"));
  }

  interface Failing {
    Object run() throws Exception;
  }

  static SQLException sqlState(String expected, Failing failing) throws Exception {
    try {
      failing.run();
    } catch (SQLException failure) {
      same(expected, failure.getSQLState());
      return failure;
    }
    throw new AssertionError("no error " + expected);
  }

  static Object run(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      return statement.execute(sql);
    }
  }

  /** The first column of the first row, or the number of rows that have changed. */
  static Object one(Connection connection, String sql, Object... parameters) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      for (int i = 0; i < parameters.length; i += 1) statement.setObject(i + 1, parameters[i]);
      if (!statement.execute()) return statement.getUpdateCount();
      ResultSet result = statement.getResultSet();
      return result.next() ? result.getObject(1) : null;
    }
  }

  static String column(ResultSet result, String name) throws SQLException {
    List<String> values = new ArrayList<>();
    while (result.next()) values.add(result.getString(name));
    return String.join(",", values);
  }

  static List<?> list(Array array) throws SQLException {
    return Arrays.asList((Object[]) array.getArray());
  }

  static void same(Object expected, Object actual) {
    if (!Objects.equals(expected, actual)) throw new AssertionError("expected " + expected + ", not " + actual);
  }
}
