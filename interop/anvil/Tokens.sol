// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Preinstalls} from "@eth-optimism/contracts-bedrock/src/libraries/Preinstalls.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";

/// @title OpenZeppelin's ERC-20, with 18 decimals.
contract PlainToken is ERC20 {
    constructor(address[] memory holders, uint256 each) ERC20("Ticket", "TCK") {
        for (uint256 i = 0; i < holders.length; i++) _mint(holders[i], each);
    }
}

/// @title OpenZeppelin's ERC-20 with EIP-2612 permit.
contract PermitToken is PlainToken, ERC20Permit {
    constructor(address[] memory holders, uint256 each) PlainToken(holders, each) ERC20Permit("Ticket") {}
}

/// @title As many decimals as most stablecoins have.
contract SixDecimalsToken is PlainToken {
    constructor(address[] memory holders, uint256 each) PlainToken(holders, each) {}

    function decimals() public pure override returns (uint8) {
        return 6;
    }
}

/// @title Takes a hundredth of what is moved.
contract FeeToken is PlainToken {
    constructor(address[] memory holders, uint256 each) PlainToken(holders, each) {}

    function _update(address from, address to, uint256 value) internal override {
        uint256 fee = from == address(0) || to == address(0) ? 0 : value / 100;
        if (fee > 0) super._update(from, address(0), fee);
        super._update(from, to, value - fee);
    }
}

/// @title Moves nothing and returns false, where others revert.
contract FalseToken is PlainToken {
    constructor(address[] memory holders, uint256 each) PlainToken(holders, each) {}

    function transferFrom(address, address, uint256) public pure override returns (bool) {
        return false;
    }
}

/// @title Returns no value, like tokens older than the ERC-20 standard.
contract NoValueToken {
    string public constant name = "Ticket";
    string public constant symbol = "TCK";
    uint8 public constant decimals = 18;
    mapping(address owner => uint256) public balanceOf;
    mapping(address owner => mapping(address spender => uint256)) public allowance;

    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);

    constructor(address[] memory holders, uint256 each) {
        for (uint256 i = 0; i < holders.length; i++) balanceOf[holders[i]] = each;
    }

    function approve(address spender, uint256 value) external {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
    }

    function transferFrom(address from, address to, uint256 value) external {
        allowance[from][msg.sender] -= value;
        balanceOf[from] -= value;
        balanceOf[to] += value;
        emit Transfer(from, to, value);
    }
}

/// @title The code that Permit2 and Multicall3 have on live chains, with Permit2's immutables for this chain.
contract Deployed {
    function permit2() external view returns (bytes memory) {
        return Preinstalls.getPermit2Code(block.chainid);
    }

    function multicall3() external pure returns (bytes memory) {
        return Preinstalls.MultiCall3Code;
    }
}
