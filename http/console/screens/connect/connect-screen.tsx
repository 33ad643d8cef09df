import { signal } from '@preact/signals';
import { urlOf } from '../../api/client.ts';
import { CodeBlock, CopyButton } from '../../parts/copying.tsx';
import { ScreenPage, Section, Tabs } from '../../parts/layout.tsx';
import { type Me, me } from '../../session/session.ts';
import { snippetsFor } from './snippets.ts';

const chosen = signal('psql');

/** How to connect from everywhere else. */
export function ConnectScreen() {
  const whose = me.value;
  if (whose === undefined) return null;
  const apiUrl = urlOf('.').href.replace(/\/$/, '');
  const snippets = snippetsFor({ apiUrl, connection: whose.connection });
  const current = snippets.find(({ id }) => id === chosen.value) ?? snippets[0];
  return (
    <ScreenPage title="Connect" lead="The same key opens both doors: PostgreSQL's protocol, and JSON over HTTP.">
      <Facts me={whose} apiUrl={apiUrl} />
      <Section title="From your code">
        <Tabs
          label="Program or driver"
          class="wrap"
          tabs={snippets}
          current={chosen.value}
          onChange={(id) => {
            chosen.value = id;
          }}
        >
          <p class="muted">{current?.note}</p>
          <CodeBlock text={current?.text ?? ''} />
        </Tabs>
      </Section>
    </ScreenPage>
  );
}

const TLS: Readonly<Record<string, string>> = { disable: 'off', prefer: 'offered', require: 'required' };

function Facts({ me: { connection, connectionString, organizationId }, apiUrl }: { readonly me: Me; readonly apiUrl: string }) {
  const facts: readonly (readonly [string, string])[] = [
    ['Organization', organizationId],
    ['Host', connection.host],
    ['Port', String(connection.port)],
    ['TLS', TLS[connection.sslmode] ?? connection.sslmode],
    ['URL', connectionString],
    ['HTTP API', `${apiUrl}/api`],
  ];
  return (
    <dl class="facts">
      {facts.map(([term, text]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd>
            <code>{text}</code>
            <CopyButton text={text} label={`Copy ${term}`} isSmall />
          </dd>
        </div>
      ))}
    </dl>
  );
}
