// Compiles every contract of this folder with the pinned solc and writes artifacts/<Contract>.json, and
// settlement/Settlement.json.
//
//   node build.mjs           writes the artifacts
//   node build.mjs --check   compares the committed artifacts with a fresh build; exit 1 names those that differ
//
// The settings leave out the metadata hash, so the bytecode depends on the source and the compiler alone. Settlement
// alone is compiled through the IR, which saves it about 3 % of the gas of a payment. The others stay close to what the
// originals cost on live chains.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import solc from "solc";

const here = dirname(fileURLToPath(import.meta.url));

// The production binary has the settlement contract and none of the others, so its artifact is in a package of its own.
const production = "Settlement.json";
const folderOf = (name) => join(here, name === production ? "settlement" : "artifacts");

const sources = Object.fromEntries(
  readdirSync(here)
    .filter((name) => name.endsWith(".sol"))
    .sort()
    .map((name) => [name, { content: readFileSync(join(here, name), "utf8") }]),
);

const settings = {
  optimizer: { enabled: true, runs: 1_000_000 },
  evmVersion: "cancun",
  metadata: { appendCBOR: false, bytecodeHash: "none" },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } },
};

function solidity(names, more) {
  const chosen = Object.fromEntries(names.map((name) => [name, sources[name]]));
  const input = { language: "Solidity", sources: chosen, settings: { ...settings, ...more } };
  const output = JSON.parse(solc.compile(JSON.stringify(input)));
  const problems = output.errors ?? [];
  for (const problem of problems) console.error(problem.formattedMessage);
  if (problems.length > 0) throw new Error("solc reported errors or warnings");
  return output.contracts;
}

function compile() {
  const throughIR = ["Settlement.sol"];
  const others = Object.keys(sources).filter((name) => !throughIR.includes(name));
  const compiled = { ...solidity(others, { viaIR: false }), ...solidity(throughIR, { viaIR: true }) };
  const artifacts = new Map();
  for (const [file, contracts] of Object.entries(compiled)) {
    // A file may declare interfaces beside its contract; the contract is the one of the file's name.
    const contractName = file.replace(/\.sol$/, "");
    const { abi, evm } = contracts[contractName];
    const artifact = {
      contractName,
      solc: solc.version(),
      sourceSha256: createHash("sha256").update(sources[file].content).digest("hex"),
      abi,
      bytecode: "0x" + evm.bytecode.object,
      deployedBytecode: "0x" + evm.deployedBytecode.object,
    };
    artifacts.set(`${contractName}.json`, JSON.stringify(artifact, null, 2) + "\n");
  }
  return artifacts;
}

function committed() {
  const files = [...readdirSync(folderOf("")), ...readdirSync(folderOf(production))];
  const names = files.filter((name) => name.endsWith(".json"));
  return new Map(names.map((name) => [name, readFileSync(join(folderOf(name), name), "utf8")]));
}

function check(fresh) {
  const kept = committed();
  const names = [...new Set([...fresh.keys(), ...kept.keys()])].sort();
  const differing = names.filter((name) => fresh.get(name) !== kept.get(name));
  for (const name of differing) {
    const why = !kept.has(name) ? "is missing" : !fresh.has(name) ? "has no source" : "differs from a fresh build";
    console.error(`${name} ${why}`);
  }
  if (differing.length === 0) console.log(`${names.length} artifacts match solc ${solc.version()}`);
  return differing.length === 0;
}

const fresh = compile();
if (process.argv.includes("--check")) {
  process.exitCode = check(fresh) ? 0 : 1;
} else {
  for (const name of committed().keys()) rmSync(join(folderOf(name), name));
  for (const [name, text] of fresh) writeFileSync(join(folderOf(name), name), text);
  console.log(`wrote ${fresh.size} artifacts with solc ${solc.version()}`);
}
