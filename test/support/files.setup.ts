import { dropAfterTests } from './control-databases.ts';

// Run for each test file, before it.
dropAfterTests();
