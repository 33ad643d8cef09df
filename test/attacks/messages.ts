import { type Answer, elsewhere, names, refused } from './attack.ts';
import type { Kind, Scene } from './scene.ts';

/** Messages that no driver would send, from the intruder's session or instead of its login. */
export interface MessageAttack {
  readonly way: string;
  /** As conversations are written: test/conversations. */
  readonly send: (scene: Scene) => readonly string[];
  readonly answer: Answer | Readonly<Record<Kind, Answer>>;
  /** Nobody has logged in before it. */
  readonly asStranger?: true;
}

export const MESSAGE_ATTACKS: readonly MessageAttack[] = [
  {
    way: "by calling another's function by its number",
    send: ({ facts }) => [`FunctionCall ${facts.function} []`],
    answer: elsewhere('42883'),
  },
  {
    way: 'by calling a function of the server by its number',
    // pg_read_file(text)
    send: () => ['FunctionCall 3826 [PG_VERSION]'],
    answer: refused('42501'),
  },
  {
    way: "by copying another's table out",
    send: ({ victim }) => [`Query COPY ${victim.id}.secrets TO STDOUT`],
    answer: elsewhere('3F000'),
  },
  {
    way: "by copying into another's table",
    send: ({ victim }) => [`Query COPY ${victim.id}.secrets FROM STDIN`],
    answer: elsewhere('3F000'),
  },
  {
    way: "by another session's prepared statement",
    send: () => ['Bind "" secret_statement []', 'Execute ""', 'Sync'],
    answer: refused('26000'),
  },
  { way: "by another session's cursor", send: () => ['Execute secret_cursor', 'Sync'], answer: refused('34000') },
  {
    way: "by a value of another's type, whose names are visible by design in one database",
    send: ({ facts }) => [`Parse "" [${facts.type}] SELECT $1`, 'Bind "" "" [secretive]', 'Execute ""', 'Sync'],
    answer: { database: refused('XX000'), schema: names('secretive') },
  },
  {
    way: 'by logging in as another in the middle of a session',
    send: ({ victim }) => [`Startup 3.0 user=${victim.id} database=${victim.id}`],
    answer: refused('08P01'),
  },
  { way: 'by a password in the middle of a session', send: ({ victim }) => [`Password ${victim.apiKey}`], answer: refused('08P01') },
  {
    way: 'by a statement in place of a password',
    send: ({ victim }) => [`Startup 3.0 user=${victim.id} database=${victim.id}`, 'Query SELECT secret FROM secrets'],
    answer: refused('08P01'),
    asStranger: true,
  },
  {
    way: 'by a password in the clear, where it would be seen',
    send: ({ victim }) => [`Startup 3.0 user=${victim.id} database=${victim.id}`, `Password ${victim.apiKey}`],
    answer: refused('08P01'),
    asStranger: true,
  },
  {
    way: 'by a proof that is none',
    send: ({ victim }) => [
      `Startup 3.0 user=${victim.id} database=${victim.id}`,
      'SASLInitialResponse SCRAM-SHA-256 n,,n=,r=abcdefghijklmnop',
      'SASLResponse c=biws,r=abcdefghijklmnop,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=',
    ],
    answer: refused('08P01'),
    asStranger: true,
  },
];
