// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A token that misbehaves on demand, for tests of what a settlement has to survive.
/// @notice Anybody may mint, move by allowance and choose how it behaves. It checks no signature of a permit.
contract HostileToken {
    enum Mode {
        Honest,
        Silent, // transferFrom returns nothing
        False, // transferFrom moves the tokens and returns false
        Lazy, // transferFrom returns true and moves nothing
        Fee, // a hundredth less arrives
        Bonus, // one unit more arrives
        Revert, // with data
        Flood, // transferFrom reverts with as many bytes as the gas pays for
        BurnTransfer, // all the gas of the call
        BurnBalance,
        BurnPermit,
        ShortBalance, // balanceOf returns 31 bytes
        FloodBalance, // balanceOf returns as many bytes as the gas pays for
        RevertBalance,
        Hook // transferFrom makes a call first and keeps what it returned
    }

    mapping(address account => uint256) private _balanceOf;
    mapping(address owner => mapping(address spender => uint256)) public allowance;

    Mode public mode;
    address private _target;
    bytes private _call;
    bool public hookWorked;
    bytes public hookReturned;

    function behave(Mode mode_, address target, bytes calldata call) external {
        (mode, _target, _call) = (mode_, target, call);
    }

    function mint(address to, uint256 amount) external {
        _balanceOf[to] += amount;
    }

    function approve(address spender, uint256 amount) external {
        allowance[msg.sender][spender] = amount;
    }

    function permit(address owner, address spender, uint256 value, uint256, uint8, bytes32, bytes32) external {
        if (mode == Mode.BurnPermit) _burn();
        allowance[owner][spender] = value;
    }

    function balanceOf(address account) external view returns (uint256) {
        uint256 length = 32;
        if (mode == Mode.BurnBalance) _burn();
        if (mode == Mode.RevertBalance) revert("no balance");
        if (mode == Mode.ShortBalance) length = 31;
        if (mode == Mode.FloodBalance) length = _flood();
        uint256 balance_ = _balanceOf[account];
        assembly {
            mstore(0, balance_)
            return(0, length)
        }
    }

    function transferFrom(address from, address to, uint256 amount) external returns (bool) {
        if (mode == Mode.BurnTransfer) _burn();
        if (mode == Mode.Revert) revert("not today");
        if (mode == Mode.Flood) {
            uint256 length = _flood();
            assembly {
                revert(0, length)
            }
        }
        if (mode == Mode.Hook) (hookWorked, hookReturned) = _target.call(_call);
        if (mode == Mode.Lazy) return true;
        allowance[from][msg.sender] -= amount;
        _balanceOf[from] -= amount;
        if (mode == Mode.Fee) amount -= amount / 100;
        if (mode == Mode.Bonus) ++amount;
        _balanceOf[to] += amount;
        if (mode == Mode.Silent) {
            assembly {
                return(0, 0)
            }
        }
        return mode != Mode.False;
    }

    function _burn() private pure {
        while (true) {}
    }

    /// @dev n words of memory cost 3n + n²/512 gas, so this is about as much as half of the gas pays for.
    function _flood() private view returns (uint256 length) {
        uint256 words = 1;
        while ((2 * words) * (3 + words / 256) < gasleft() / 2) words *= 2;
        return 32 * words;
    }
}
