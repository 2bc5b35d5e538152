import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// While developing, everything but the console comes from a server that runs already.
const server = process.env.TOKENKEEP_URL ?? 'http://127.0.0.1:8420';

export default defineConfig({
  base: '/console/',
  plugins: [react()],
  html: { cspNonce: '__NONCE__' },
  server: { host: '127.0.0.1', proxy: { '^/(?!console)': { target: server, changeOrigin: false } } },
  build: {
    target: 'es2022',
    reportCompressedSize: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // no data: URLs, so that the policy needs none
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: 'codemirror', test: /node_modules[\\/](@codemirror|@lezer|style-mod|crelt|w3c-keyname|@marijn)/ },
            { name: 'react', test: /node_modules[\\/](react|react-dom|react-router|scheduler|@tanstack)[\\/]/ },
            { name: 'mantine', test: /node_modules[\\/](@mantine|@floating-ui|react-remove-scroll|react-number-format|react-textarea)/ },
          ],
        },
      },
    },
  },
});
