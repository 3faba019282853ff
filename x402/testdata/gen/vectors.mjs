// Makes the fixed vectors that the tests of this module check themselves
// against: typed data and signatures by viem, payloads and headers by the
// official x402 client, canonical JSON by the package canonicalize. Nothing in
// them depends on the time or on chance. Run: npm ci && npm run vectors
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import canonicalize from "canonicalize";
import { getAddress, hashTypedData, keccak256, recoverTypedDataAddress, stringToHex } from "viem";
import { privateKeyToAccount } from "viem/accounts";

const start = 1795000000; // Unix seconds

// The official client takes the time and its nonces from these two.
Date.now = () => start * 1000;
let drawn = 0;
globalThis.crypto.getRandomValues = (bytes) => {
  const random = Buffer.from(keccak256(stringToHex(`boxoffice random ${drawn++}`)).slice(2), "hex");
  bytes.set(random.subarray(0, bytes.length));
  return bytes;
};

const { x402Client } = await import("@x402/core/client");
const { encodePaymentSignatureHeader } = await import("@x402/core/http");
const { ExactEvmScheme } = await import("@x402/evm/exact/client");

const account = (name) => privateKeyToAccount(keccak256(stringToHex(`boxoffice test key ${name}`)));
const address = (name) => account(name).address;
const hash = (text) => createHash("sha256").update(text).digest("hex");
const lower = (value) => value.toLowerCase();
const maxUint256 = (1n << 256n) - 1n;

const permit2 = "0x000000000022D473030F116dDEE9F6B43aC78BA3";
const exactProxy = "0x402085c248EeA27D92E8b30b2C58ed07f9E20001";

const permitTypes = {
  PermitWitnessTransferFrom: [
    { name: "permitted", type: "TokenPermissions" },
    { name: "spender", type: "address" },
    { name: "nonce", type: "uint256" },
    { name: "deadline", type: "uint256" },
    { name: "witness", type: "Witness" },
  ],
  TokenPermissions: [
    { name: "token", type: "address" },
    { name: "amount", type: "uint256" },
  ],
  Witness: [
    { name: "to", type: "address" },
    { name: "validAfter", type: "uint256" },
  ],
};

const approvalTypes = {
  QuoteApproval: [
    { name: "resource", type: "string" },
    { name: "requesterScopeHash", type: "bytes32" },
    { name: "quoteId", type: "string" },
    { name: "quoteHash", type: "bytes32" },
    { name: "paymentHash", type: "bytes32" },
    { name: "action", type: "string" },
    { name: "asset", type: "address" },
    { name: "amount", type: "uint256" },
    { name: "payTo", type: "address" },
    { name: "expiresAt", type: "uint256" },
  ],
};

const permitData = (chainId, authorization) => ({
  domain: { name: "Permit2", chainId, verifyingContract: permit2 },
  types: permitTypes,
  primaryType: "PermitWitnessTransferFrom",
  message: {
    permitted: {
      token: authorization.permitted.token,
      amount: BigInt(authorization.permitted.amount),
    },
    spender: authorization.spender,
    nonce: BigInt(authorization.nonce),
    deadline: BigInt(authorization.deadline),
    witness: {
      to: authorization.witness.to,
      validAfter: BigInt(authorization.witness.validAfter),
    },
  },
});

const requirements = (chainId, amount, extra = {}) => ({
  scheme: "exact",
  network: `eip155:${chainId}`,
  asset: lower(address("token")),
  amount: `${amount}`,
  payTo: lower(address("recipient")),
  maxTimeoutSeconds: 300,
  extra: { assetTransferMethod: "permit2", name: "Test Token", version: "1", ...extra },
});

const resource = (id) => ({
  url: `https://boxoffice.example/requests/${id}/submit`,
  description: "Admission of job.open",
  mimeType: "application/json",
});

async function permitVector(name, payer, chainId, payload, header) {
  const { permit2Authorization: authorization, signature } = payload.payload;
  const data = permitData(chainId, authorization);
  const document = Buffer.from(header, "base64").toString("utf8");
  const canonical = canonicalize(payload);
  if (canonicalize(JSON.parse(document)) !== canonical) throw new Error(`${name}: the header holds another payload`);
  return {
    name,
    key: `boxoffice test key ${payer}`, // the private key is its Keccak-256
    chainId,
    authorization,
    digest: hashTypedData(data),
    signature,
    signer: lower(await recoverTypedDataAddress({ ...data, signature })),
    canonical,
    paymentHash: hash(canonical),
    header,
  };
}

// A payload of the official client.
async function official(name, chainId, amount, payer, withResource = true) {
  const client = new x402Client().register("eip155:*", new ExactEvmScheme(account(payer)));
  client.setSpendControls(false); // it would pay with well-known tokens alone
  const payload = await client.createPaymentPayload({
    x402Version: 2,
    error: "Payment required",
    ...(withResource && { resource: resource("3f1c3b0e-3f3a-4b8a-9d55-0d9c6a1f2b01") }),
    accepts: [requirements(chainId, amount)],
  });
  return permitVector(name, payer, chainId, JSON.parse(JSON.stringify(payload)), encodePaymentSignatureHeader(payload));
}

// A payload put together by hand and signed by viem.
async function handmade(name, { chainId, payer, write = lower, amount, nonce, deadline, validAfter, shape = (p) => p, indent }) {
  const terms = requirements(chainId, amount);
  const authorization = {
    from: write(address(payer)),
    permitted: { token: write(terms.asset), amount: `${amount}` },
    spender: write(exactProxy),
    nonce: `${nonce}`,
    deadline: `${deadline}`,
    witness: { to: write(terms.payTo), validAfter: `${validAfter}` },
  };
  const signature = await account(payer).signTypedData(permitData(chainId, authorization));
  const payload = shape({
    x402Version: 2,
    accepted: terms,
    payload: { signature, permit2Authorization: authorization },
  });
  const header = Buffer.from(JSON.stringify(payload, null, indent), "utf8").toString("base64");
  return permitVector(name, payer, chainId, payload, header);
}

const reversed = (value) =>
  value && typeof value === "object" && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).reverse().map(([key, member]) => [key, reversed(member)]))
    : value;

const permits = [
  await official("the official client", 31337, 1000000000000000000n, "alice"),
  await official("the official client, another chain and payer", 8453, 1n, "bob"),
  await official("the official client, no resource", 31337, 25000000000000000n, "carol", false),
  await handmade("lowercase addresses", {
    chainId: 31337, payer: "alice", amount: 10n ** 18n, nonce: 0n, deadline: start + 300, validAfter: 0n,
  }),
  await handmade("checksummed addresses, an early validAfter", {
    chainId: 1, payer: "bob", write: getAddress, amount: 123456789n, nonce: 257n, deadline: start + 600, validAfter: start - 600,
  }),
  await handmade("the largest numbers", {
    chainId: 9007199254740991, payer: "carol", amount: maxUint256, nonce: maxUint256, deadline: maxUint256, validAfter: maxUint256,
  }),
  await handmade("zero everywhere", {
    chainId: 1, payer: "dave", amount: 0n, nonce: 0n, deadline: 0n, validAfter: 0n,
  }),
  await handmade("empty extensions, reversed keys, indented", {
    chainId: 84532, payer: "erin", amount: 5n, nonce: 1n << 255n, deadline: start + 1, validAfter: 1n, indent: 2,
    shape: (payload) => reversed({ ...payload, extensions: {}, resource: resource("00000000-0000-0000-0000-000000000000") }),
  }),
  await handmade("text outside ASCII", {
    chainId: 31337, payer: "frank", amount: 7n, nonce: 8n, deadline: start + 9, validAfter: 10n,
    shape: (payload) => ({
      ...payload,
      resource: { url: "https://boxoffice.example/requests/ü/submit", description: "„Zulassung“ \u2028 <b>&amp;</b> 🎟️ \u0007\t\"\\/" },
    }),
  }),
];

async function approvalVector(name, chainId, serviceName, signer, message) {
  const data = {
    domain: { name: `${serviceName} Paid Action`, version: "1", chainId },
    types: approvalTypes,
    primaryType: "QuoteApproval",
    message,
  };
  const signature = await account(signer).signTypedData(data);
  return {
    name,
    key: `boxoffice test key ${signer}`, // the private key is its Keccak-256
    serviceName,
    chainId,
    message: { ...message, amount: `${message.amount}`, expiresAt: `${message.expiresAt}` },
    digest: hashTypedData(data),
    signature,
    signer: lower(await recoverTypedDataAddress({ ...data, signature })),
  };
}

const approval = (index, overrides) => ({
  resource: resource("3f1c3b0e-3f3a-4b8a-9d55-0d9c6a1f2b01").url,
  requesterScopeHash: `0x${hash("scope")}`,
  quoteId: "3f1c3b0e-3f3a-4b8a-9d55-0d9c6a1f2b01",
  quoteHash: `0x${hash("quote")}`,
  paymentHash: `0x${permits[index].paymentHash}`,
  action: "job.open",
  asset: lower(address("token")),
  amount: BigInt(permits[index].authorization.permitted.amount),
  payTo: lower(address("recipient")),
  expiresAt: BigInt(start + 600),
  ...overrides,
});

const approvals = [
  await approvalVector("a job", 31337, "Boxoffice", "alice", approval(0)),
  await approvalVector("a schedule on another chain", 8453, "Boxoffice", "bob", approval(1, { action: "schedule.create" })),
  await approvalVector("the largest numbers", 9007199254740991, "Boxoffice", "carol", approval(5, {
    expiresAt: BigInt(Number.MAX_SAFE_INTEGER), quoteId: "ffffffff-ffff-ffff-ffff-ffffffffffff",
    requesterScopeHash: `0x${"ff".repeat(32)}`, quoteHash: `0x${"ff".repeat(32)}`,
  })),
  await approvalVector("zero and empty", 1, "", "dave", approval(6, {
    resource: "", quoteId: "00000000-0000-0000-0000-000000000000", action: "", expiresAt: 0n,
    requesterScopeHash: `0x${"00".repeat(32)}`, quoteHash: `0x${"00".repeat(32)}`, paymentHash: `0x${"00".repeat(32)}`,
    asset: `0x${"00".repeat(20)}`, payTo: `0x${"00".repeat(20)}`,
  })),
  await approvalVector("text outside ASCII", 84532, "Théâtre 剧院 🎭", "erin", approval(7, {
    resource: "https://théâtre.example/requests/🎟️/submit", action: "oracle.request",
  })),
];

const documents = {
  "sorting from RFC 8785 §3.2.3": '{"\\u20ac":"Euro Sign","\\r":"Carriage Return","\\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\\ud83d\\ude00":"Emoji: Grinning Face","\\u0080":"Control","\\u00f6":"Latin Small Letter O With Diaeresis"}',
  "strings and literals from RFC 8785 §3.2.2": '{"numbers":[333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null, true, false]}',
  "nested and empty": ' {"b":[{},[],{"z":1,"a":[ ]}],"a":{"b":{"a":"","":0}}} ',
  "a lone string": '"\\u0000\\u001f\\u007f\\u0080\\u2028\\u2029"',
  "a lone number": "-0.0",
  "numbers": "[0,-0,1,-1,10,1e1,1.0,100e-2,0.1,1e20,1e21,123456789012345680000,1e-6,1e-7,-1.5e-9,9007199254740991,9007199254740992,5e-324,1.7976931348623157e308,4.35,0.000001]",
  "surrogate pairs sort by their UTF-16 units": '{"\\uffff":1,"\\ud800\\udc00":2,"\\udbff\\udfff":3,"\\ue000":4,"a":5,"A":6,"aa":7}',
};

const canonical = Object.entries(documents).map(([name, json]) => {
  const text = canonicalize(JSON.parse(json));
  return { name, json, canonical: text, sha256: hash(text) };
});

function save(path, made, content) {
  const file = fileURLToPath(new URL(path, import.meta.url));
  mkdirSync(fileURLToPath(new URL(".", new URL(path, import.meta.url))), { recursive: true });
  writeFileSync(file, JSON.stringify({ made, ...content }, null, 2) + "\n");
}

save("../permit2.json", "by x402/testdata/gen with viem 2.57.1 and @x402/evm 2.27.0", { vectors: permits });
save("../../../testdata/quote_approval.json", "by x402/testdata/gen with viem 2.57.1", { vectors: approvals });
save("../../../internal/strictjson/testdata/canonical.json", "by x402/testdata/gen with canonicalize 5.1.0", { vectors: canonical });
