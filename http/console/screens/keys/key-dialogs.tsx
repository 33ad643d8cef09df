import { useState } from 'preact/hooks';
import { formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { ShownKey } from '../../parts/copying/shown-key.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Choice } from '../../parts/fields.tsx';
import { Notice } from '../../parts/notice.tsx';
import { type Me, me, type Scope } from '../../session/me.ts';
import { DialogForm } from './dialog-form.tsx';
import { expiryOf } from './expiry.ts';
import {
  createKey,
  isOfThisPage,
  type Key,
  type KeyDetails,
  type MadeKey,
  revokeKey,
  rotateKey,
  SCOPE_MEANINGS,
  updateKey,
} from './key-calls.ts';
import { detailsOf, type KeyDraft, KeyFields } from './key-fields.tsx';

interface Closable {
  readonly onClose: () => void;
}

const SCOPES = [
  ['read', 'read'],
  ['write', 'write'],
  ['admin', 'admin'],
] as const satisfies readonly (readonly [Scope, string])[];

export function CreateDialog({ onClose, onMade }: Closable & { readonly onMade: (made: MadeKey) => void }) {
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

export function EditDialog({ of: key, onClose, onDone }: KeyDialogProps) {
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

export function RotateDialog({ of: key, onClose, onMade }: Closable & { readonly of: Key; readonly onMade: (made: MadeKey) => void }) {
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

export function RevokeDialog({ of: key, onClose, onDone }: KeyDialogProps) {
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
export function MadeKeyDialog({ made, onClose }: Closable & { readonly made: MadeKey }) {
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
