import { render } from 'preact';
import { lockWhenIdle } from './session/idle-lock.ts';
import { revokeWhenLeft } from './session/session.ts';
import { App } from './shell/app.tsx';
import { followSignInAddresses } from './shell/follow-sign-in-addresses.ts';

followSignInAddresses();
lockWhenIdle();
revokeWhenLeft();
render(<App />, document.body);
