import { SQLDialect } from '@codemirror/lang-sql';
import { OTHER_KEYWORDS, TYPES, USUAL_KEYWORDS } from './completion/words.ts';

/** Types that are names of columns more often. */
const NAMES = new Set(['box', 'circle', 'line', 'name', 'path', 'point']);

/** PostgreSQL's, with its keywords only: those of the SQL standard and of PL/pgSQL that CodeMirror's has are usual names of columns. */
export const POSTGRESQL = SQLDialect.define({
  doubleDollarQuotedStrings: true,
  operatorChars: '+-*/<>=~!@#%^&|`?',
  specialVar: '',
  keywords: [...USUAL_KEYWORDS, ...OTHER_KEYWORDS].join(' '),
  types: TYPES.filter((type) => !NAMES.has(type)).join(' '),
});
