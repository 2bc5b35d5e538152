'use strict';

// The reference UI has a dark dress and leaves it to the page to choose.
const dark = matchMedia('(prefers-color-scheme: dark)');
const dress = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', dress);
dress();

// What people copy from the page into a ticket or a chat must hold no key, and
// the browser must neither remember one nor send it to a spelling service.
const hideKeys = (headers) => headers && headers.map((value, name) => (/-(API|PROXY)-KEY$/i.test(name) ? '<your key>' : value));
const careful = ({ React }) => ({
  wrapComponents: {
    curl: (Curl) => (props) => React.createElement(Curl, { ...props, request: props.request.update('headers', hideKeys) }),
    Input: (Input) => (props) => React.createElement(Input, props.id === 'api_key_value' ? { ...props, autoComplete: 'off', spellCheck: false } : props),
  },
});

SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#api',
  plugins: [careful],
  deepLinking: true,
  filter: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  showExtensions: true, // x-permission
  defaultModelsExpandDepth: 0,
  // A key lives in the memory of the open page, and nowhere else.
  persistAuthorization: false,
  // It would send the description to another origin.
  validatorUrl: null,
});
