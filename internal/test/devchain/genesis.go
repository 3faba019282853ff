package devchain

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"

	"boxoffice/contracts"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
	"github.com/go-json-experiment/json"
)

// TokenAddress is the address of the test token on every development chain.
var TokenAddress = common.HexToAddress("0xb0c0ff1ce0000000000000000000000000000001")

// TokenSymbol and TokenDecimals describe the test token.
const (
	TokenSymbol   = "TICKET"
	TokenDecimals = 18
)

// Funded is what an account owns in the genesis block. Nil amounts are zero.
type Funded struct {
	Address common.Address
	Native  *big.Int // in wei
	Tokens  *big.Int // in atomic units of the test token
	// Permit2Allowed gives Permit2 an unlimited token allowance, for which a payer otherwise sends a transaction.
	Permit2Allowed bool
}

// The storage slots of TestToken.sol.
const (
	totalSupplySlot = 0
	balanceOfSlot   = 1
	allowanceSlot   = 2
)

// loadGenesis reads the genesis block of the chain in DataDir, or makes and writes it: it must be the same at every
// start, and its timestamp is the time of the first start.
func loadGenesis(cfg Config) (*core.Genesis, error) {
	if cfg.DataDir == "" {
		return newGenesis(cfg), nil
	}
	path := filepath.Join(cfg.DataDir, "genesis.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		genesis := newGenesis(cfg)
		if text, err = json.Marshal(genesis); err != nil {
			return nil, fmt.Errorf("genesis: %w", err)
		}
		return genesis, writeDurably(path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("genesis: %w", err)
	}
	genesis := new(core.Genesis)
	if err := json.Unmarshal(text, genesis); err != nil {
		return nil, fmt.Errorf("genesis: %s: %w", path, err)
	}
	if id := genesis.Config.ChainID; !id.IsUint64() || id.Uint64() != cfg.ChainID {
		return nil, fmt.Errorf("genesis: the chain in %s has chain id %s, not %d", cfg.DataDir, id, cfg.ChainID)
	}
	return genesis, nil
}

func newGenesis(cfg Config) *core.Genesis {
	config := *params.AllDevChainProtocolChanges
	config.ChainID = new(big.Int).SetUint64(cfg.ChainID)
	config.BogotaTime = nil // this fork is not released; its gas costs are not those of live chains

	// The enabled forks call these system contracts in every block.
	alloc := core.SystemContractAllocs()
	alloc[contracts.Permit2Address] = types.Account{Code: contracts.Permit2().Runtime, Nonce: 1}
	alloc[contracts.ExactProxyAddress] = types.Account{Code: contracts.ExactProxy().Runtime, Nonce: 1}
	alloc[contracts.Multicall3Address] = types.Account{Code: contracts.Multicall3().Runtime, Nonce: 1}
	alloc[contracts.Create2Address] = types.Account{Code: contracts.Create2Runtime, Nonce: 1}
	alloc[contracts.SettlementAddress] = types.Account{Code: contracts.Settlement().Runtime, Nonce: 1}

	for _, at := range cfg.Without {
		delete(alloc, at)
	}

	token := types.Account{Code: contracts.TestToken().Runtime, Nonce: 1, Storage: map[common.Hash]common.Hash{}}
	supply := new(big.Int)
	owned := map[common.Address]*big.Int{}
	faucet := Funded{Address: address(faucetKey), Native: faucetNative}
	for _, f := range append([]Funded{faucet}, cfg.Funded...) {
		account := alloc[f.Address]
		account.Balance = sum(account.Balance, f.Native)
		alloc[f.Address] = account
		if f.Tokens != nil {
			supply.Add(supply, f.Tokens)
			owned[f.Address] = sum(owned[f.Address], f.Tokens)
			token.Storage[mappingSlot(common.BigToHash(big.NewInt(balanceOfSlot)), f.Address)] =
				common.BigToHash(owned[f.Address])
		}
		if f.Permit2Allowed {
			slot := mappingSlot(common.BigToHash(big.NewInt(allowanceSlot)), f.Address)
			token.Storage[mappingSlot(slot, contracts.Permit2Address)] = common.MaxHash
		}
	}
	if supply.Sign() > 0 {
		token.Storage[common.BigToHash(big.NewInt(totalSupplySlot))] = common.BigToHash(supply)
	}
	alloc[TokenAddress] = token
	for at, account := range alloc {
		account.Balance = sum(account.Balance) // the JSON of a genesis block needs every balance
		alloc[at] = account
	}

	return &core.Genesis{
		Config:     &config,
		Timestamp:  uint64(cfg.Now().Unix()),
		GasLimit:   60_000_000,
		BaseFee:    big.NewInt(params.InitialBaseFee),
		Difficulty: new(big.Int),
		Alloc:      alloc,
	}
}

func sum(amounts ...*big.Int) *big.Int {
	total := new(big.Int)
	for _, n := range amounts {
		if n != nil {
			total.Add(total, n)
		}
	}
	return total
}

// mappingSlot returns the storage slot of mapping[key] in Solidity.
func mappingSlot(mapping common.Hash, key common.Address) common.Hash {
	return crypto.Keccak256Hash(common.LeftPadBytes(key.Bytes(), 32), mapping.Bytes())
}

// writeDurably writes a file so that after a crash of the process or the machine either all of it or nothing is there.
func writeDurably(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
