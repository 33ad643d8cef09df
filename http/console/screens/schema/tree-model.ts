import type { Schema, SchemaTable } from '../../api/database-schema.ts';
import { hasWords } from '../../format.ts';
import type { IconName } from '../../parts/icon.tsx';
import { addressOf, objectsOf, type SchemaObject } from './schema-objects.ts';

interface TreeNode {
  readonly id: string;
  readonly label: string;
  readonly icon?: IconName;
  /** Beside the label: how many there are, or of what kind it is. */
  readonly note?: string;
  /** What it opens. */
  readonly address?: string;
  readonly isOpenAtFirst?: boolean;
  readonly children: readonly TreeNode[];
}

interface Group {
  readonly title: string;
  readonly icon: IconName;
  readonly has: (object: SchemaObject) => boolean;
}

const ofKind =
  (...kinds: readonly SchemaTable['kind'][]) =>
  (object: SchemaObject) =>
    object.kind === 'table' && kinds.includes(object.of.kind);

const GROUPS: readonly Group[] = [
  { title: 'Tables', icon: 'table', has: ofKind('table', 'partitioned table', 'foreign table') },
  { title: 'Views', icon: 'eye', has: ofKind('view') },
  { title: 'Materialized views', icon: 'eye', has: ofKind('materialized view') },
  { title: 'Sequences', icon: 'steps', has: ({ kind }) => kind === 'sequence' },
  { title: 'Types', icon: 'type', has: ({ kind }) => kind === 'type' },
  { title: 'Functions', icon: 'function', has: ({ kind }) => kind === 'function' },
];

/** All schemas are open at first if there are no more than this. */
const OPEN_MAX = 3;

export function treeOf(schema: Schema): readonly TreeNode[] {
  const bySchema = new Map<string, SchemaObject[]>(schema.schemas.map(({ name }) => [name, []]));
  const extensions: TreeNode[] = [];
  for (const object of objectsOf(schema)) {
    if (object.kind === 'extension') extensions.push(leaf(object, 'plug'));
    else bySchema.get(object.of.schema)?.push(object);
  }
  const isOpen = bySchema.size <= OPEN_MAX;
  const nodes = [...bySchema].map(([name, objects]) => schemaNode(name, objects, isOpen));
  return extensions.length === 0 ? nodes : [...nodes, group('extensions', 'Extensions', extensions, false)];
}

function schemaNode(name: string, objects: readonly SchemaObject[], isOpenAtFirst: boolean): TreeNode {
  const children = GROUPS.flatMap(({ title, icon, has }) => {
    const leaves = nested(objects.filter(has), icon);
    return leaves.length === 0 ? [] : [group(`${title} of ${name}`, title, leaves, title === 'Tables')];
  });
  return { id: `schema ${name}`, label: name, icon: 'schema', isOpenAtFirst, children };
}

function group(id: string, label: string, children: readonly TreeNode[], isOpenAtFirst: boolean): TreeNode {
  return { id, label, note: String(children.length), isOpenAtFirst, children };
}

function leaf(object: SchemaObject, icon: IconName, children: readonly TreeNode[] = []): TreeNode {
  const address = addressOf(object);
  const note = noteOf(object);
  return { id: address, label: labelOf(object), icon, address, children, ...(note === undefined ? {} : { note }) };
}

/** Partitions stand below what they are partitions of. */
function nested(objects: readonly SchemaObject[], icon: IconName): readonly TreeNode[] {
  const partitions = new Map<string, SchemaObject[]>();
  const names = new Set(objects.map(({ of }) => of.name));
  const tops: SchemaObject[] = [];
  for (const object of objects) {
    const parent = object.kind === 'table' ? object.of.partitionOf : null;
    const isBelow = parent !== null && object.kind === 'table' && parent.schema === object.of.schema && names.has(parent.name);
    if (isBelow) partitions.set(parent.name, [...(partitions.get(parent.name) ?? []), object]);
    else tops.push(object);
  }
  const node = (object: SchemaObject): TreeNode => leaf(object, icon, partitions.get(object.of.name)?.map(node) ?? []);
  return tops.map(node);
}

function labelOf(object: SchemaObject): string {
  return object.kind === 'function' ? `${object.of.name}(${object.of.identityArguments})` : object.of.name;
}

function noteOf(object: SchemaObject): string | undefined {
  if (object.kind === 'extension') return object.of.version;
  if (object.kind === 'type') return object.of.kind;
  if (object.kind === 'function') return object.of.kind === 'function' ? undefined : object.of.kind;
  if (object.kind !== 'table') return undefined;
  return { 'partitioned table': 'partitioned', 'foreign table': 'foreign' }[object.of.kind as string];
}

/** A node that is shown, and its place among those with the same parent. */
export interface TreeRow {
  readonly node: TreeNode;
  readonly level: number;
  readonly position: number;
  readonly siblings: number;
  readonly parent: string | undefined;
  readonly isOpen: boolean;
}

/**
 * The rows that are shown, from above.
 * @param toggled nodes that are not as they were at first
 * @param filter words that a name must have; everything that has them is shown
 */
export function rowsOf(nodes: readonly TreeNode[], toggled: ReadonlySet<string>, filter: string): readonly TreeRow[] {
  const isFiltered = filter.trim() !== '';
  const rows: TreeRow[] = [];
  const add = (siblings: readonly TreeNode[], level: number, parent: string | undefined) => {
    siblings.forEach((node, index) => {
      const isOpen = node.children.length > 0 && (isFiltered || (node.isOpenAtFirst ?? false) !== toggled.has(node.id));
      rows.push({ node, level, position: index + 1, siblings: siblings.length, parent, isOpen });
      if (isOpen) add(node.children, level + 1, node.id);
    });
  };
  add(isFiltered ? filtered(nodes, filter) : nodes, 1, undefined);
  return rows;
}

function filtered(nodes: readonly TreeNode[], filter: string): readonly TreeNode[] {
  return nodes.flatMap((node) => {
    const children = filtered(node.children, filter);
    const isFound = node.address !== undefined && hasWords(node.label, filter);
    return isFound || children.length > 0 ? [{ ...node, children }] : [];
  });
}
