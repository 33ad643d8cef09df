import { render } from 'preact';
import { lockWhenIdle, revokeWhenLeft } from './session/session.ts';
import { App, followSignInAddresses } from './shell/app.tsx';

followSignInAddresses();
lockWhenIdle();
revokeWhenLeft();
render(<App />, document.body);
