const wordsOf = (words: string): readonly string[] => words.split(/\s+/);

/** The keywords that are used most; those that are used more often come first. */
export const USUAL_KEYWORDS =
  wordsOf(`select from where insert into values update set delete create table alter drop join left inner on group by order having limit offset
and or not null is in like ilike between exists case when then else end as distinct union all with returning default primary key
references foreign unique check constraint index view function trigger begin commit rollback explain analyze asc desc using true
false add column rename to cascade if`);

/** The other keywords of PostgreSQL 18, as `pg_get_keywords()` has them. */
export const OTHER_KEYWORDS =
  wordsOf(`abort absolute access admin after aggregate also always analyse any array asensitive assertion assignment asymmetric at atomic
attach attribute authorization backward before binary both breadth cache call called cascaded cast catalog chain characteristics
checkpoint close cluster coalesce collate collation committed compression concurrently configuration conflict connection constraints
continue conversion copy cost cross csv cube current current_catalog current_date current_role current_schema current_time
current_timestamp current_user cursor cycle database deallocate dec declare defaults deferrable deferred definer delimiter
delimiters depends detach dictionary disable discard do domain double each enable encoding encrypted enforced enum escape except
exclude excluding exclusive execute expression extension external extract family fetch filter finalize first following for force
forward freeze full functions generated global grant granted greatest grouping handler hold identity immediate immutable implicit
import include including increment indexes inherit inherits initially inline inout insensitive intersect invoker isnull isolation
json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value keep
large last lateral leading leakproof least listen load local localtime localtimestamp lock locked logged matched materialized
maxvalue merge merge_action minvalue move national natural nchar next nfc nfd nfkc nfkd no none normalize normalized nothing notify
notnull nowait nullif nulls of oids omit only operator option ordinality out outer over overlaps overlay overriding owned parallel
parser partial partition passing placing policy preceding precision prepare prepared preserve prior privileges procedural procedure
procedures publication range read reassign recursive referencing refresh reindex relative release repeatable replace replica reset
restart restrict return returns revoke right rollup routine routines row rows rule savepoint schema schemas scroll search security
sequence sequences serializable session session_user setof share show similar snapshot some sql stable start statement stdin stdout
stored strict strip subscription substring support symmetric sysid system system_user tables tablesample tablespace temp temporary
ties trailing transaction transform treat trim truncate trusted uescape unbounded uncommitted unconditional unencrypted unlisten
unlogged until vacuum validate validator variadic verbose virtual volatile whitespace window within without wrapper write
xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable yes`);

/** Keywords that are names more often: they are offered as keywords, and look like names. */
export const NAMELIKE_KEYWORDS =
  wordsOf(`absent action class columns comment comments conditional content data day depth document empty error event format groups header hour
indent input instead keys label language level location mapping match method minute mode month names nested new object objects off
old options others owner parameter password period plan plans position program quote quotes ref role scalar second server sets
simple skip source standalone statistics storage string target template type types unknown user valid value version views work year
zone`);

export const TYPES =
  wordsOf(`bigint bigserial bit bool boolean box bytea char character cidr circle date daterange decimal float float4 float8 inet int int2 int4
int4multirange int4range int8 int8range integer interval json jsonb jsonpath line lseg macaddr macaddr8 money name numeric numrange
oid path pg_lsn point polygon real regclass regproc regtype serial smallint smallserial text time timestamp timestamptz timetz
tsquery tsrange tstzrange tsvector uuid varbit varchar varying xml`);
