/** Owns the server of orders for the economics: 200 orders, 40 customers, written by hand, the same in each run. */

const text = { type: 'string' };
const tool = (name, description, properties = {}) => ({
  name,
  description,
  inputSchema: { type: 'object', properties, required: Object.keys(properties), additionalProperties: false },
});
const tools = [
  tool('list_orders', 'Lists the ids of the orders of one day, the newest first.', {
    day: { ...text, description: 'A day of the year 2026, as 2026-03-01.' },
  }),
  tool('get_order', 'Returns one order with its lines, its total and its customer.', {
    id: { ...text, description: 'The id of the order.' },
  }),
  tool('get_customer', 'Returns one customer with address and contact.', {
    id: { ...text, description: 'The id of the customer.' },
  }),
  tool('set_order_status', 'Changes the status of one order.', {
    id: { ...text, description: 'The id of the order.' },
    status: { ...text, enum: ['open', 'paid', 'shipped'], description: 'The new status.' },
  }),
  tool('send_message', 'Sends a message to a customer by e-mail.', {
    customer: { ...text, description: 'The id of the customer.' },
    body: { ...text, description: 'The text of the message.' },
  }),
  tool('get_exchange_rate', 'Returns how many euros one unit of a currency is worth.', {
    currency: { ...text, description: 'Three letters, as USD.' },
  }),
];

const GOODS = ['desk lamp', 'office chair', 'monitor arm', 'paper, 500 sheets', 'ink cartridge', 'keyboard'];
function order(id) {
  const number = Number(id.slice(2));
  const lines = Array.from({ length: 1 + (number % 4) }, (_, at) => ({
    article: GOODS[(number + at) % GOODS.length],
    sku: `SKU-${1000 + ((number * 7 + at) % 500)}`,
    quantity: 1 + ((number + at) % 5),
    price: 10 + ((number * 13 + at * 5) % 90),
  }));
  return {
    id,
    status: ['open', 'paid', 'shipped'][number % 3],
    customer: `C-${number % 40}`,
    created: `2026-03-01T${String(number % 24).padStart(2, '0')}:15:00Z`,
    currency: 'EUR',
    lines,
    total: lines.reduce((sum, { quantity, price }) => sum + quantity * price, 0),
    shipping: {
      carrier: 'Parcel Express',
      service: 'standard',
      tracking: `PX${900000 + number}`,
      weightGrams: 400 + number,
    },
  };
}

const ANSWERS = {
  list_orders: () => Array.from({ length: 40 }, (_, at) => `O-${at + 1}`),
  get_order: ({ id }) => order(id),
  get_customer: ({ id }) => ({
    id,
    name: `Customer ${id.slice(2)}`,
    email: `customer${id.slice(2)}@example.org`,
    address: { street: `${id.slice(2)} Main Street`, city: 'Springfield', country: 'US' },
    language: 'en',
  }),
  set_order_status: ({ id, status }) => ({ ...order(id), status }),
  send_message: ({ customer }) => ({ sent: true, customer }),
  get_exchange_rate: ({ currency }) => ({ currency, rate: 0.9 }),
};

function answer(method, params) {
  if (method === 'initialize')
    return {
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: 'orders', version: '1.0.0' },
    };
  if (method === 'tools/list') return { tools };
  if (method !== 'tools/call') return {};
  return { content: [{ type: 'text', text: JSON.stringify(ANSWERS[params.name](params.arguments)) }] };
}

let rest = '';
process.stdin
  .setEncoding('utf8')
  .on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const { id, method, params } of lines.map((line) => JSON.parse(line)))
      if (id !== undefined)
        process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result: answer(method, params) })}\n`);
  })
  .on('end', () => process.exit(0));
