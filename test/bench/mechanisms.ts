/** Text in one of Postern's compiled modules, and what takes its place. */
export interface Replacement {
  /** The end of the module's address. */
  readonly module: string;
  /** Stands there exactly once; the start fails otherwise. */
  readonly text: string;
  readonly by: string;
}

/** Something that makes Postern faster and that it could do without. */
export interface Mechanism {
  readonly name: string;
  readonly about: string;
  /** How it is switched off: by a setting, by leaving out a flag of Node's, or in the code. */
  readonly env?: Readonly<Record<string, string>>;
  readonly flag?: string;
  readonly replacement?: Replacement;
}

/** The mechanisms on the hot paths, for `npm run bench -- --without <name>`. */
export const MECHANISMS: readonly Mechanism[] = [
  { name: 'nothing', about: 'the same a second time: the noise' },
  { name: 'busy-polling', about: 'staying awake for the next reply of a lone client', env: { POSTERN_BUSY_POLL_US: '0' } },
  { name: 'sharing', about: 'several requests in one backend’s pipeline, at both doors', env: { POSTERN_PIPELINE_DEPTH: '1' } },
  {
    name: 'short-sharing',
    about: 'sharing where all backends are busy, for statements of up to 20 ms',
    replacement: {
      module: 'proxy/checkout.js',
      text: "(request !== undefined ? this.#tryShare(request, 'short') : undefined)",
      by: 'undefined',
    },
  },
  {
    name: 'quick-sharing',
    about: 'sharing as soon as enough backends are at work, for the quickest statements',
    env: { POSTERN_PIPELINE_SPREAD: '1000' },
  },
  {
    name: 'automatic-preparation',
    about: 'preparing unnamed statements that come again and again',
    replacement: { module: 'src/multiplex/statement-registry.js', text: 'const SIGHTINGS = 3;', by: 'const SIGHTINGS = Infinity;' },
  },
  {
    name: 'parse-cache',
    about: 'recognizing a Parse message by its bytes, so that it need not be inspected again; what may share is recognized all the same',
    replacement: { module: 'proxy/statements.js', text: 'mayRepeat ? this.#recall(scanner) : undefined', by: 'undefined' },
  },
  {
    name: 'reply-gathering',
    about: 'writing large results in pieces of 64 kB',
    replacement: {
      module: 'proxy/write-buffer.js',
      text: 'if (goesOn && this.#streamed.bytes >= STREAM_BYTES && this.bytes < GATHERED_BYTES) {',
      by: 'if (false) {',
    },
  },
  {
    name: 'row-widening',
    about: 'passing rows of a chunk on as one piece',
    replacement: { module: 'proxy/backend-messages.js', text: 'scanner.widen();', by: '' },
  },
  {
    name: 'late-writes',
    about: 'one write to a backend for what comes in one turn of the event loop',
    replacement: {
      module: 'src/backend/connection.js',
      text: 'if (bytes.length > SOON_MAX_BYTES) {',
      by: 'if (true) {',
    },
  },
  {
    name: 'same-backend',
    about: 'preferring the backend that the session had last',
    replacement: {
      module: 'proxy/checkout.js',
      text: 'this.#tryLease(this.#preferred)',
      by: 'this.#tryLease(undefined)',
    },
  },
  {
    name: 'local-parse',
    about: 'answering a named Parse without a backend: for clients that wait for it while others of theirs have all backends',
    replacement: {
      module: 'proxy/statements.js',
      text: 'prepareWithoutBackend({ buffer, start, end, length, last }) {',
      by: 'prepareWithoutBackend({ buffer, start, end, length, last }) { return false;',
    },
  },
  {
    name: 'shared-read-buffer',
    about: 'accepted sockets reading into one buffer',
    replacement: {
      module: 'src/runtime/reused-read-buffers.js',
      text: 'handle.useUserBuffer(memory);',
      by: 'return;',
    },
  },
  {
    name: 'checkin-first',
    about: 'giving a backend to the next request before the answer is written to the client',
    replacement: {
      module: 'proxy/relay.js',
      text: 'this.#settleBackend();',
      by: 'this.toClient.flush(); this.#settleBackend();',
    },
  },
  {
    name: 'backend-read-buffer',
    about: 'each backend’s socket reading into one buffer',
    replacement: { module: 'src/backend/connection.js', text: 'login.ssl ? undefined : new SocketReader()', by: 'undefined' },
  },
  {
    name: 'input-turns',
    about: 'organizations taking turns in the event loop: for fairness',
    replacement: { module: 'src/runtime/input-scheduler.js', text: 'this.isContended = true;', by: '' },
  },
  {
    name: 'audit-batches',
    about: 'making audit records of 64 events at a time',
    replacement: { module: 'src/catalog/audit/log.js', text: 'EVENTS_MAX = 64', by: 'EVENTS_MAX = 1' },
  },
  {
    name: 'audited-texts',
    about: 'keeping the redacted texts of statements for the audit log',
    replacement: { module: 'src/catalog/audit/records.js', text: 'known !== undefined && known.command', by: 'false && known.command' },
  },
  {
    name: 'statement-counting',
    about: 'counting statements by text, for GET /api/insights/queries',
    replacement: {
      module: 'src/router/authenticator.js',
      text: 'statements: this.#catalog.queryStatistics.of(organization, role, (sql) => this.#asWritten(sql, organization)),',
      by: '',
    },
  },
  {
    name: 'traces',
    about: 'asking at the end of a request over HTTP whether a span of it is wanted, where no SDK is loaded',
    replacement: {
      module: 'http/problems.js',
      text: 'this.#traces !== undefined && tenant !== undefined && statement !== undefined',
      by: 'false',
    },
  },
  { name: 'semi-space', about: 'a young generation of 8 MB', flag: '--max-semi-space-size=8' },
  { name: 'no-pretenuring', about: 'V8 not allocating in the old space by experience', flag: '--no-allocation-site-pretenuring' },
  {
    name: 'http-fast-path',
    about: 'plain queries over HTTP without Node’s parser and Fastify',
    replacement: {
      module: 'http/fast-path/connection.js',
      text: '#take(bytes) {',
      by: '#take(bytes) { this.#leave(bytes); return;',
    },
  },
];

/** @throws TypeError for a name that is none */
export function mechanismsNamed(names: readonly string[]): readonly Mechanism[] {
  if (names.includes('all')) return MECHANISMS;
  return names.map((name) => {
    const found = MECHANISMS.find((mechanism) => mechanism.name === name);
    if (found !== undefined) return found;
    throw new TypeError(`--without: there is no ${name}; there are all, ${MECHANISMS.map((known) => known.name).join(', ')}`);
  });
}
