import { formatAgo, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CopyButton } from '../../parts/copying/copy-button.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import type { Key } from './key-calls.ts';
import { isOfThisPage } from './key-calls.ts';

/** What is going to happen to a key. */
export type Deed = 'edit' | 'rotate' | 'revoke';

export interface KeyTableProps {
  readonly keys: readonly Key[];
  readonly onAct: (deed: Deed, key: Key) => void;
}

export function KeyTable({ keys, onAct }: KeyTableProps) {
  const names = new Map(keys.map(({ keyId, name }) => [keyId, name]));
  const columns: readonly Column<Key>[] = [
    { title: 'Name', isWide: true, cell: (key) => <Name of={key} names={names} /> },
    { title: 'Scope', cell: ({ scope }) => <span class={scope === 'admin' ? 'tag accent' : 'tag'}>{scope}</span> },
    { title: 'Networks', cell: ({ networks }) => <Networks of={networks} /> },
    { title: 'Expires', cell: ({ expiresAt }) => <Time iso={expiresAt} none="never" /> },
    { title: 'Last used', cell: ({ lastUsedAt }) => <Time iso={lastUsedAt} none="never" /> },
    { title: 'Created', cell: (key) => <Made of={key} names={names} /> },
    { title: 'Actions', align: 'right', cell: (key) => <Actions of={key} onAct={onAct} /> },
  ];
  return <Table label="Keys" columns={columns} rows={keys} keyOf={({ keyId }) => keyId} />;
}

type Names = ReadonlyMap<string, string>;

function Name({ of: key, names }: { readonly of: Key; readonly names: Names }) {
  const { keyId, name, prefix, replacedBy } = key;
  return (
    <div class="key-name">
      <strong>{name}</strong> {isOfThisPage(key) && <span class="tag good">this page</span>}
      {replacedBy !== null && (
        <span class="tag warning" title={replacedBy}>
          replaced{names.has(replacedBy) ? '' : ` by ${replacedBy}`}
        </span>
      )}
      <span class="key-ids muted">
        <code>{prefix}…</code>
        <CopyButton text={keyId} label={`Copy the id ${keyId}`} isSmall />
      </span>
    </div>
  );
}

const NETWORKS_SHOWN = 2;

function Networks({ of: networks }: { readonly of: Key['networks'] }) {
  if (networks === null) return <span class="muted">anywhere</span>;
  const more = networks.length - NETWORKS_SHOWN;
  return (
    <span class="networks" title={networks.join('\n')}>
      {networks.slice(0, NETWORKS_SHOWN).map((network) => (
        <code key={network}>{network}</code>
      ))}
      {more > 0 && <span class="muted">and {more} more</span>}
    </span>
  );
}

function Time({ iso, none }: { readonly iso: string | null; readonly none: string }) {
  if (iso === null) return <span class="muted">{none}</span>;
  return <time title={formatTime(iso)}>{formatAgo(iso)}</time>;
}

function Made({ of: { createdAt, createdBy }, names }: { readonly of: Key; readonly names: Names }) {
  const by = createdBy === null ? 'sign-up or operator' : (names.get(createdBy) ?? createdBy);
  return (
    <span class="made">
      <Time iso={createdAt} none="" />
      <span class="muted" title={createdBy ?? undefined}>
        by {by}
      </span>
    </span>
  );
}

function Actions({ of: key, onAct }: { readonly of: Key; readonly onAct: KeyTableProps['onAct'] }) {
  const isReplaced = key.replacedBy !== null;
  return (
    <span class="row-actions">
      <Button kind="quiet" icon="edit" label={`Change ${key.name}`} onClick={() => onAct('edit', key)} />
      <Button
        kind="quiet"
        icon="rotate"
        label={isReplaced ? 'Another key is taking its place already' : `Rotate ${key.name}`}
        isDisabled={isReplaced}
        onClick={() => onAct('rotate', key)}
      />
      <Button kind="quiet" icon="trash" label={`Revoke ${key.name}`} onClick={() => onAct('revoke', key)} />
    </span>
  );
}
