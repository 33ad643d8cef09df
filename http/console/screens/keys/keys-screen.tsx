import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatAgo, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CopyButton, ShownKey } from '../../parts/copying.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Choice, Field } from '../../parts/fields.tsx';
import { ScreenPage, Section } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { MissingScopeNotice } from '../../session/missing-scope-notice.tsx';
import { type Me, me, type Scope } from '../../session/session.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { say } from '../../shell/toasts.tsx';
import {
  createKey,
  type Expiry,
  expiryOf,
  instantOf,
  isOfThisPage,
  type Key,
  type KeyDetails,
  LIFETIMES,
  listKeys,
  type MadeKey,
  revokeKey,
  rotateKey,
  SCOPE_MEANINGS,
  updateKey,
} from './keys.ts';

const LEAD = 'Each program should have a key of its own: then one can end without the others.';

export function KeysScreen() {
  const whose = me.value;
  if (whose === undefined) return null;
  return whose.key.scope === 'admin' ? <AllKeys /> : <OwnKey me={whose} />;
}

/** What is open over the list. */
type Open = { readonly deed: 'create' } | { readonly deed: Deed; readonly key: Key } | { readonly deed: 'show'; readonly made: MadeKey };

function AllKeys() {
  const load = useLoad(listKeys);
  const [open, setOpen] = useState<Open>();
  const create = () => setOpen({ deed: 'create' });
  useEffect(() => {
    screenCommands.value = [{ title: 'New key', group: 'Keys', icon: 'plus', run: create }];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const close = () => setOpen(undefined);
  const done = (said: string) => {
    close();
    say(said);
    load.reload();
  };
  const actions = (
    <Button kind="primary" icon="plus" onClick={create}>
      New key
    </Button>
  );
  return (
    <ScreenPage title="Keys" lead={LEAD} actions={actions}>
      <Loaded of={load}>{(keys) => <KeyTable keys={keys} onAct={(deed, key) => setOpen({ deed, key })} />}</Loaded>
      {open?.deed === 'create' && <CreateDialog onClose={close} onMade={(made) => setOpen({ deed: 'show', made })} />}
      {open?.deed === 'edit' && <EditDialog of={open.key} onClose={close} onDone={done} />}
      {open?.deed === 'rotate' && <RotateDialog of={open.key} onClose={close} onMade={(made) => setOpen({ deed: 'show', made })} />}
      {open?.deed === 'revoke' && <RevokeDialog of={open.key} onClose={close} onDone={done} />}
      {open?.deed === 'show' && (
        <MadeKeyDialog
          made={open.made}
          onClose={() => {
            close();
            load.reload();
          }}
        />
      )}
    </ScreenPage>
  );
}

/** All that a key without the scope admin may know of keys. */
function OwnKey({ me: { key } }: { readonly me: Me }) {
  return (
    <ScreenPage title="Keys" lead={LEAD}>
      <MissingScopeNotice scopes={['admin']} what="see or change keys" />
      <Section title="The key of this page">
        <dl class="facts">
          <Fact term="Name" text={key.name} />
          <Fact term="Begins with" text={`${key.prefix}…`} />
          <Fact term="Scope" text={`${key.scope}: may ${SCOPE_MEANINGS[key.scope]}`} />
          <Fact term="Expires" text={key.expiresAt === null ? 'never' : formatTime(key.expiresAt)} />
        </dl>
      </Section>
    </ScreenPage>
  );
}

function Fact({ term, text }: { readonly term: string; readonly text: string }) {
  return (
    <div>
      <dt>{term}</dt>
      <dd>{text}</dd>
    </div>
  );
}

/** What is going to happen to a key. */
type Deed = 'edit' | 'rotate' | 'revoke';

interface KeyTableProps {
  readonly keys: readonly Key[];
  readonly onAct: (deed: Deed, key: Key) => void;
}

function KeyTable({ keys, onAct }: KeyTableProps) {
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

interface Closable {
  readonly onClose: () => void;
}

const SCOPES = [
  ['read', 'read'],
  ['data', 'data'],
  ['write', 'write'],
  ['admin', 'admin'],
] as const satisfies readonly (readonly [Scope, string])[];

function CreateDialog({ onClose, onMade }: Closable & { readonly onMade: (made: MadeKey) => void }) {
  const [draft, setDraft] = useState<KeyDraft>({ name: '', expiry: expiryOf(null), networks: '' });
  const [scope, setScope] = useState<Scope>('write');
  const create = async () => onMade(await createKey(detailsOf(draft), scope));
  return (
    <DialogForm title="New key" action="Make the key" onSubmit={create} onClose={onClose}>
      <KeyFields draft={draft} onChange={setDraft}>
        <div>
          <Choice label="Scope" value={scope} options={SCOPES} onChange={setScope} />
          <p class="muted scope-meaning">May {SCOPE_MEANINGS[scope]}.</p>
        </div>
      </KeyFields>
    </DialogForm>
  );
}

interface KeyDialogProps extends Closable {
  readonly of: Key;
  readonly onDone: (said: string) => void;
}

function EditDialog({ of: key, onClose, onDone }: KeyDialogProps) {
  const before: KeyDraft = { name: key.name, expiry: expiryOf(key.expiresAt), networks: (key.networks ?? []).join('\n') };
  const [draft, setDraft] = useState(before);
  const save = async () => {
    await updateKey(key.keyId, changesOf(before, draft));
    onDone(`“${draft.name.trim()}” is changed.`);
  };
  return (
    <DialogForm title={`Change “${key.name}”`} action="Save" onSubmit={save} onClose={onClose}>
      <KeyFields draft={draft} onChange={setDraft} />
      {draft.networks !== before.networks && (
        <p class="muted">
          Other networks end the sessions that were opened with this key{isOfThisPage(key) && ', and may shut this page out'}.
        </p>
      )}
    </DialogForm>
  );
}

/** What nobody has touched is not sent: the field for the time has no seconds. */
function changesOf(before: KeyDraft, draft: KeyDraft): Partial<KeyDetails> {
  const { name, expiresAt, networks } = detailsOf(draft);
  return {
    ...(draft.name === before.name ? {} : { name }),
    ...(draft.expiry.lifetime === before.expiry.lifetime && draft.expiry.until === before.expiry.until ? {} : { expiresAt }),
    ...(draft.networks === before.networks ? {} : { networks }),
  };
}

const GRACES = [
  ['0', 'at once'],
  ['3600', 'in an hour'],
  ['86400', 'in 24 hours'],
  ['604800', 'in 7 days'],
  ['2592000', 'in 30 days'],
] as const satisfies readonly (readonly [string, string])[];

function RotateDialog({ of: key, onClose, onMade }: Closable & { readonly of: Key; readonly onMade: (made: MadeKey) => void }) {
  const [grace, setGrace] = useState<(typeof GRACES)[number][0]>('86400');
  const rotate = async () => onMade(await rotateKey(key, Number(grace)));
  return (
    <DialogForm title={`Rotate “${key.name}”`} action="Rotate" isDangerous={grace === '0'} onSubmit={rotate} onClose={onClose}>
      <p>A new key takes its place, with the same name, scope, expiry and networks.</p>
      <Choice label={`${key.prefix}… ends`} value={grace} options={GRACES} onChange={setGrace} />
      {grace === '0' ? (
        <p>What uses the old key stops working, and its sessions end{isOfThisPage(key) && '. This page then asks for the new one'}.</p>
      ) : (
        <p class="muted">Until then both are valid, and whoever still uses the old one is told so by a header or a notice.</p>
      )}
    </DialogForm>
  );
}

function RevokeDialog({ of: key, onClose, onDone }: KeyDialogProps) {
  const revoke = async () => {
    await revokeKey(key);
    onDone(`“${key.name}” is revoked.`);
  };
  return (
    <DialogForm title={`Revoke “${key.name}”?`} action="Revoke the key" isDangerous onSubmit={revoke} onClose={onClose}>
      <p>
        <code>{key.prefix}…</code> is dead at once, at both doors. Its sessions and requests end. This cannot be undone.
      </p>
      <p class="muted">{key.lastUsedAt === null ? 'It was never used.' : `It was last used at ${formatTime(key.lastUsedAt)}.`}</p>
      {isOfThisPage(key) && (
        <Notice tone="warning">
          <p>This page uses the key, and will ask for another.</p>
        </Notice>
      )}
    </DialogForm>
  );
}

/** It stays until somebody says that the key is kept. */
function MadeKeyDialog({ made, onClose }: Closable & { readonly made: MadeKey }) {
  const [isKept, setKept] = useState(false);
  const whose = me.value;
  if (whose === undefined) return null;
  const { apiKey, name, scope, formerEndsAt } = made;
  const former = formerEndsAt === undefined ? '' : ` The one that it replaces ends at ${formatTime(formerEndsAt)}.`;
  return (
    <Dialog title={`The key “${name}”`}>
      <div class="form">
        <ShownKey
          apiKey={apiKey}
          organizationId={whose.organizationId}
          connectionString={connectionStringOf(apiKey, whose)}
          warning={`Whoever has it may ${SCOPE_MEANINGS[scope]}.${former}`}
          isKept={isKept}
          onKept={setKept}
        />
        <footer>
          <Button kind="primary" isDisabled={!isKept} onClick={onClose}>
            Done
          </Button>
        </footer>
      </div>
    </Dialog>
  );
}

/** How to connect with it, as a URL. */
function connectionStringOf(apiKey: string, { connectionString }: Pick<Me, 'connectionString'>): string {
  return connectionString.replace(/^(postgres:\/\/[^@]*)@/, `$1:${apiKey}@`);
}

/** What stands in the fields. */
interface KeyDraft {
  readonly name: string;
  readonly expiry: Expiry;
  readonly networks: string;
}

interface KeyFieldsProps {
  readonly draft: KeyDraft;
  readonly onChange: (draft: KeyDraft) => void;
  /** What stands behind the name. */
  readonly children?: ComponentChildren;
}

function KeyFields({ draft, onChange, children }: KeyFieldsProps) {
  const { name, expiry, networks } = draft;
  return (
    <>
      <Field label="Name" value={name} onInput={(next) => onChange({ ...draft, name: next })} placeholder="nightly job" isRequired />
      {children}
      <div class="expiry">
        <Choice
          label="Expires"
          value={expiry.lifetime}
          options={LIFETIMES}
          onChange={(lifetime) => onChange({ ...draft, expiry: { ...expiry, lifetime } })}
        />
        {expiry.lifetime === 'until' && (
          <Field
            label="Time (of this browser)"
            type="datetime-local"
            value={expiry.until}
            onInput={(until) => onChange({ ...draft, expiry: { ...expiry, until } })}
            isRequired
          />
        )}
      </div>
      <Field
        label="Networks"
        value={networks}
        onInput={(next) => onChange({ ...draft, networks: next })}
        rows={3}
        placeholder={'203.0.113.0/24\n2001:db8::/32'}
        hint="The only addresses that it may be used from, one a line. Empty: from anywhere."
        isMono
      />
    </>
  );
}

/** @throws Error that says what is wrong in the fields */
function detailsOf({ name, expiry, networks }: KeyDraft): KeyDetails {
  const expiresAt = instantOf(expiry);
  if (expiresAt === undefined) throw new Error('the time of the expiry is missing');
  const lines = networks.split(/[\s,]+/).filter((line) => line !== '');
  return { name: name.trim(), expiresAt, networks: lines.length === 0 ? null : lines };
}

interface DialogFormProps {
  readonly title: string;
  readonly action: string;
  readonly isDangerous?: boolean;
  /** What it throws is shown, and the fields stay. */
  readonly onSubmit: () => Promise<void>;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** A form over the screen, until it has gone through. */
function DialogForm({ title, action, isDangerous = false, onSubmit, onClose, children }: DialogFormProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit();
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {children}
        {error !== undefined && <ProblemNotice error={error} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind={isDangerous ? 'danger' : 'primary'} type="submit" isBusy={isBusy}>
            {action}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
