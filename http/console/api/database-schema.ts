export interface SchemaColumn {
  readonly name: string;
  /** As SQL writes it. */
  readonly type: string;
  /** No row has NULL there. */
  readonly notNull: boolean;
  readonly default: string | null;
  readonly identity: 'always' | 'by default' | null;
  /** The expression of a generated column. */
  readonly generated: string | null;
  readonly generation: 'stored' | 'virtual' | null;
  /** Qualified; null: the one of its type. */
  readonly collation: string | null;
  /** false: its collation takes texts that differ for equal. */
  readonly isDeterministic: boolean;
  readonly comment: string | null;
}

export interface Constraint {
  readonly name: string;
  /** As `ALTER TABLE … ADD CONSTRAINT` takes it. */
  readonly definition: string;
}

export interface SchemaKey extends Constraint {
  readonly columns: readonly string[];
}

export interface NotNull extends Constraint {
  readonly column: string;
}

export type ReferentialAction = 'no action' | 'restrict' | 'cascade' | 'set null' | 'set default';

export interface ForeignKey extends Constraint {
  readonly columns: readonly string[];
  readonly referencedSchema: string;
  readonly referencedTable: string;
  readonly referencedColumns: readonly string[];
  readonly onUpdate: ReferentialAction;
  readonly onDelete: ReferentialAction;
  /** The last column is a PERIOD. */
  readonly isTemporal: boolean;
}

export interface SchemaIndex {
  readonly name: string;
  readonly definition: string;
  /** null stands for an expression. */
  readonly columns: readonly (string | null)[];
  readonly isUnique: boolean;
  readonly isPrimary: boolean;
  readonly isValid: boolean;
  readonly method: string;
  readonly bytes: number;
  /** null where it is not known. */
  readonly scans: number | null;
}

export interface Policy {
  readonly name: string;
  readonly command: 'all' | 'select' | 'insert' | 'update' | 'delete';
  readonly roles: readonly string[];
  readonly isPermissive: boolean;
  readonly using: string | null;
  readonly check: string | null;
}

export interface SchemaTable {
  readonly schema: string;
  readonly name: string;
  readonly kind: 'table' | 'partitioned table' | 'view' | 'materialized view' | 'foreign table';
  readonly comment: string | null;
  /** null before the first ANALYZE or VACUUM. */
  readonly rowEstimate: number | null;
  readonly totalBytes: number;
  readonly tableBytes: number;
  readonly indexBytes: number;
  readonly columns: readonly SchemaColumn[];
  readonly primaryKey: SchemaKey | null;
  readonly unique: readonly SchemaKey[];
  /** Columns that tell all rows apart, never NULL and exact; null: there are none. */
  readonly rowKey: readonly string[] | null;
  /** Empty before PostgreSQL 18. */
  readonly notNulls: readonly NotNull[];
  readonly checks: readonly (Constraint & { readonly expression: string })[];
  readonly exclusions: readonly Constraint[];
  readonly foreignKeys: readonly ForeignKey[];
  readonly indexes: readonly SchemaIndex[];
  readonly rowSecurity: boolean;
  readonly isRowSecurityForced: boolean;
  readonly policies: readonly Policy[];
  readonly triggers: readonly { readonly name: string; readonly definition: string; readonly isEnabled: boolean }[];
  /** Its query; null for a table. */
  readonly definition: string | null;
  readonly isUnlogged: boolean;
  /** Storage parameters, and those of a view: `fillfactor=70`. */
  readonly options: readonly string[];
  readonly partitionKey: string | null;
  readonly partitionOf: { readonly schema: string; readonly name: string; readonly bound: string } | null;
  readonly inherits: readonly { readonly schema: string; readonly name: string }[];
  /** Whoever reads it reads partitions too, or tables that have its columns by inheritance. */
  readonly hasChildren: boolean;
}

export interface SchemaType {
  readonly schema: string;
  readonly name: string;
  readonly kind: 'enum' | 'domain' | 'composite' | 'range';
  /** Of an enum. */
  readonly labels: readonly string[] | null;
  /** Of any other. */
  readonly definition: string | null;
  readonly comment: string | null;
}

export interface SchemaCollation {
  readonly schema: string;
  readonly name: string;
  /** As `CREATE COLLATION` takes it. */
  readonly definition: string;
  readonly comment: string | null;
}

export interface Sequence {
  readonly schema: string;
  readonly name: string;
  readonly type: string;
  /** A number, which may exceed 2^53, as are the following. */
  readonly start: string;
  readonly increment: string;
  readonly minValue: string;
  readonly maxValue: string;
  readonly cache: string;
  readonly isCycling: boolean;
  readonly ownedBy: { readonly schema: string; readonly table: string; readonly column: string } | null;
}

export interface Routine {
  readonly schema: string;
  readonly name: string;
  readonly kind: 'function' | 'procedure' | 'aggregate' | 'window';
  readonly arguments: string;
  /** What tells it from others of its name. */
  readonly identityArguments: string;
  readonly returns: string | null;
  readonly language: string;
  readonly volatility: 'immutable' | 'stable' | 'volatile';
  readonly isSecurityDefiner: boolean;
  /** `CREATE OR REPLACE …`; null for an aggregate. */
  readonly definition: string | null;
  readonly comment: string | null;
}

export interface SchemaWarning {
  readonly severity: string;
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
}

/** `GET /api/schema` */
export interface Schema {
  readonly schemas: readonly { readonly name: string; readonly comment: string | null }[];
  readonly tables: readonly SchemaTable[];
  readonly types: readonly SchemaType[];
  readonly collations: readonly SchemaCollation[];
  readonly sequences: readonly Sequence[];
  readonly functions: readonly Routine[];
  readonly extensions: readonly { readonly name: string; readonly version: string; readonly schema: string }[];
  /** false when there is more than is shown; `warnings` has details. */
  readonly isComplete: boolean;
  readonly warnings?: readonly SchemaWarning[];
}

/** Whether it holds rows of its own, so that it has keys and indexes. */
export function isTable({ kind }: SchemaTable): boolean {
  return kind === 'table' || kind === 'partitioned table';
}
