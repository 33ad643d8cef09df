import { useEffect, useState } from 'preact/hooks';
import { useLoad } from '../../api/use-load.ts';
import { formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { ScreenPage } from '../../parts/layout/screen-page.tsx';
import { Section } from '../../parts/layout/section.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { type Me, me } from '../../session/me.ts';
import { MissingScopeNotice } from '../../session/missing-scope-notice.tsx';
import { screenCommands } from '../../shell/palette-commands.ts';
import { say } from '../../shell/toasts.tsx';
import { type Key, listKeys, type MadeKey, SCOPE_MEANINGS } from './key-calls.ts';
import { CreateDialog, EditDialog, MadeKeyDialog, RevokeDialog, RotateDialog } from './key-dialogs.tsx';
import { type Deed, KeyTable } from './key-table.tsx';

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
