import { render } from 'preact';
import { lockWhenIdle } from './session/idle-lock.ts';
import { App } from './shell/app.tsx';

lockWhenIdle();
render(<App />, document.body);
