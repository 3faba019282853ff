// Compiles Tokens.sol with the pinned solc and prints {"<Contract>": "0x<creation bytecode>"}.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import solc from "solc";

const here = dirname(fileURLToPath(import.meta.url));
const source = "Tokens.sol";
const input = {
  language: "Solidity",
  sources: { [source]: { content: readFileSync(join(here, source), "utf8") } },
  settings: {
    optimizer: { enabled: true, runs: 1_000_000 },
    evmVersion: "cancun",
    outputSelection: { [source]: { "*": ["evm.bytecode.object"] } },
  },
};
const packages = { import: (path) => ({ contents: readFileSync(join(here, "node_modules", path), "utf8") }) };
const output = JSON.parse(solc.compile(JSON.stringify(input), packages));
const problems = (output.errors ?? []).filter(({ severity }) => severity === "error");
for (const problem of problems) console.error(problem.formattedMessage);
if (problems.length > 0) process.exit(1);
const contracts = Object.entries(output.contracts[source]);
console.log(JSON.stringify(Object.fromEntries(contracts.map(([name, { evm }]) => [name, "0x" + evm.bytecode.object]))));
