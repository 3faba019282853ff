// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

interface IPermit2 {
    function nonceBitmap(address owner, uint256 position) external view returns (uint256 word);
}

/// @title Settles a batch of x402 "exact" payments. A bad payment fails alone.
/// @notice Each payment is one call of the x402 exact proxy's `settle`, in a frame of its own that has a bounded amount
///         of gas and is undone unless the recipient's balance rises by exactly the amount. Anyone may call. The
///         contract has no owner, no money, no allowance, no storage and no upgrade.
/// @dev A batch is packed, big-endian. A header of 7 bytes: flags (1; bit 0: return reports; the other bits are 0), gas
///      of one payment (4), number of payments (2). Then a record for each payment:
///      - form (1): bits 0 to 4 are the length of the amount less 1, bit 5 PAIR, bit 6 PLAIN, bit 7 APPROVAL
///      - length of the nonce (1), at most 32
///      - PAIR: token (20), recipient (20). Without it, they are those of the record before.
///      - owner (20), amount, nonce, validAfter (5), deadline (5)
///      - signature: compact (64, EIP-2098). PLAIN: length (2) and that many bytes, and the owner may have code.
///      - APPROVAL, an EIP-2612 permit for Permit2: length of its value (1, 1 to 32), value, length of its deadline (1,
///        at most 32), deadline, compact signature (64)
contract Settlement {
    /// @notice What a simulation wants to know of a payment besides its outcome, as it was before the payment was tried
    ///         and after the payments before it. A payment that was not tried has zeros.
    struct Report {
        uint8 outcome;
        bool code; // the owner has code
        bool spent; // the nonce is spent
        uint256 balance; // of the owner, 0 if it cannot be read
        uint256 allowance; // that Permit2 has from the owner, 0 if it cannot be read
        bytes data; // of outcome REVERTED: what the failed call returned, at most 256 bytes
    }

    /// @notice The outcome of each payment, one byte each, in the order of the batch. Every successful `settle` emits
    ///         exactly one.
    event Batch(bytes outcomes);

    /// @notice A payment called `settle` again.
    error Reentered();
    /// @notice The batch is not encoded as above.
    error Malformed();
    /// @notice Only this contract may call `pay`.
    error OnlySelf();

    // The outcomes. Only a SETTLED payment has changed anything.
    uint256 private constant NOT_TRIED = 0; // the gas left was too little for this payment and for all after it
    uint256 private constant SETTLED = 1; // the recipient got exactly the amount
    uint256 private constant TOO_EARLY = 2; // validAfter is in the future
    uint256 private constant EXPIRED = 3; // the deadline has passed
    uint256 private constant SPENT = 4; // the nonce is spent
    uint256 private constant CODE = 5; // the owner has code, and the record is not PLAIN
    uint256 private constant REVERTED = 6; // a call failed, or the gas of the payment was too little
    uint256 private constant NOT_EXACT = 7; // the recipient got another amount

    // The bits of a record's form.
    uint256 private constant PAIR = 1 << 5;
    uint256 private constant PLAIN = 1 << 6;
    uint256 private constant APPROVAL = 1 << 7;

    address private constant PROXY = 0x402085c248EeA27D92E8b30b2C58ed07f9E20001;
    address private constant PERMIT2 = 0x000000000022D473030F116dDEE9F6B43aC78BA3;

    // The selectors of the functions that it calls.
    // settle(((address,uint256),uint256,uint256),address,(address,uint256),bytes)
    uint256 private constant SETTLE = 0x13cd3b53;
    uint256 private constant PERMIT = 0xd505accf; // permit(address,address,uint256,uint256,uint8,bytes32,bytes32)
    uint256 private constant BALANCE_OF = 0x70a08231; // balanceOf(address)
    uint256 private constant ALLOWANCE = 0xdd62ed3e; // allowance(address,address)
    uint256 private constant NONCE_BITMAP = 0x4fe02b44; // nonceBitmap(address,uint256)

    /// @dev The gas that one round of the loop needs besides the payment's own and the end of `settle` needs. About
    ///      twice of what was measured.
    uint256 private constant RESERVE = 30_000;
    /// @dev The gas of each read for a report.
    uint256 private constant READ_GAS = 100_000;
    uint256 private constant MAX_DATA = 256;
    /// @dev In place of a balance: the recipient's balance is not known.
    uint256 private constant UNKNOWN = type(uint256).max;

    // The frame is memory that holds the call of `pay` for the current payment. Its words at these offsets are:
    uint256 private constant BEFORE = 0x20; // the recipient's balance, or UNKNOWN
    uint256 private constant TO_APPROVAL = 0x60; // where the second `bytes` is, from BEFORE
    uint256 private constant SETTLE_LENGTH = 0x80;
    uint256 private constant SETTLE_CALL = 0xa0; // 4 bytes of selector, then the arguments of the proxy's settle:
    uint256 private constant TOKEN = 0xa4;
    uint256 private constant AMOUNT = 0xc4;
    uint256 private constant NONCE = 0xe4;
    uint256 private constant DEADLINE = 0x104;
    uint256 private constant OWNER = 0x124;
    uint256 private constant RECIPIENT = 0x144;
    uint256 private constant VALID_AFTER = 0x164;
    uint256 private constant SIGNATURE_OFFSET = 0x184;
    uint256 private constant SIGNATURE_LENGTH = 0x1a4;
    uint256 private constant SIGNATURE = 0x1c4;

    uint256 private transient _locked;

    /// @notice Tries every payment of a batch in order. If the gas is about to run out, it stops, and what it has
    ///         settled stays.
    /// @param batch The packed payments. If it is malformed up to the first payment that is not tried, all reverts.
    /// @return reports One for each payment if the flags ask for them, otherwise none.
    function settle(bytes calldata batch) external returns (Report[] memory reports) {
        if (_locked != 0) revert Reentered();
        _locked = 1;
        bytes memory outcomes;
        (outcomes, reports) = _settle(batch);
        _locked = 0;
        emit Batch(outcomes);
    }

    /// @notice Reads many nonces in one call.
    /// @param asked The owner (20 bytes) and the position of a word (32), for each word.
    /// @return words Permit2's `nonceBitmap` of each owner at the position beside it.
    function nonces(bytes calldata asked) external view returns (uint256[] memory words) {
        if (asked.length % 52 != 0) revert Malformed();
        words = new uint256[](asked.length / 52);
        for (uint256 i = 0; i < words.length; ++i) {
            address owner = address(bytes20(asked[i * 52:]));
            words[i] = IPermit2(PERMIT2).nonceBitmap(owner, uint256(bytes32(asked[i * 52 + 20:])));
        }
    }

    /// @notice Makes one payment or reverts. Only `settle` calls it, with bounded gas.
    /// @dev What it reverts with begins with a word: the outcome. If it runs out of gas, there is no word.
    /// @param before The balance of the recipient, or UNKNOWN.
    /// @param settleCall The call of the proxy's `settle`.
    /// @param permitCall The call of the token's EIP-2612 `permit` that comes first, or nothing. It may fail: somebody
    ///        else may have submitted the same permit.
    /// @return balance The balance of the recipient after the payment.
    function pay(uint256 before, bytes calldata settleCall, bytes calldata permitCall)
        external
        returns (uint256 balance)
    {
        if (msg.sender != address(this)) revert OnlySelf();
        uint256 args;
        assembly ("memory-safe") {
            args := add(settleCall.offset, 4)
        }
        address token = address(uint160(_uint(args, 32)));
        address recipient = address(uint160(_uint(args + 160, 32)));
        uint256 amount = _uint(args + 128, 32) == uint160(recipient) ? 0 : _uint(args + 32, 32);
        if (permitCall.length != 0) _call(token, permitCall);
        if (before == UNKNOWN) before = _balanceOf(token, recipient);
        if (!_call(PROXY, settleCall)) _fail(REVERTED);
        balance = _balanceOf(token, recipient);
        unchecked {
            if (balance - before != amount) _fail(NOT_EXACT);
        }
    }

    function _settle(bytes calldata batch) private returns (bytes memory outcomes, Report[] memory reports) {
        unchecked {
            (uint256 cursor, uint256 end) = _span(batch);
            if (batch.length < 7 || _uint(cursor, 1) > 1) revert Malformed();
            uint256 bound = _uint(cursor + 1, 4);
            outcomes = new bytes(_uint(cursor + 5, 2));
            // EIP-150 lets a call have 63/64 of the gas that is left. A long signature costs less than 1 gas for a byte.
            uint256 need = bound + bound / 63 + RESERVE + batch.length + 16 * outcomes.length;
            if (_uint(cursor, 1) == 1) {
                reports = _newReports(outcomes.length);
                need += 3 * READ_GAS + (2000 + 4 * reports.length) * reports.length;
            }
            cursor += 7;
            uint256 frame = _newFrame();
            for (uint256 i = 0; i < outcomes.length; ++i) {
                uint256 form = _uint(cursor, 1);
                if (i == 0 && form & PAIR == 0) revert Malformed();
                if (gasleft() < need) return (outcomes, reports);
                uint256 size;
                (cursor, size) = _load(frame, form, cursor);
                if (cursor > end) revert Malformed();
                if (reports.length != 0) _read(frame, reports[i]);
                uint256 outcome = _skip(frame, form);
                if (outcome == NOT_TRIED) outcome = _try(frame, size, bound);
                _setByte(outcomes, i, outcome);
                if (reports.length != 0) _finish(reports[i], outcome);
            }
            if (cursor != end) revert Malformed();
        }
    }

    /// @dev Writes the record at the cursor into the frame. The caller checks that the record ends inside of the batch.
    /// @return next Where the record ends.
    /// @return size The length of the call of `pay`.
    function _load(uint256 frame, uint256 form, uint256 cursor) private pure returns (uint256 next, uint256 size) {
        unchecked {
            uint256 nonceLength = _uint(cursor + 1, 1);
            if (nonceLength > 32) revert Malformed();
            cursor += 2;
            if (form & PAIR != 0) {
                _put(frame + TOKEN, _uint(cursor, 20));
                _put(frame + RECIPIENT, _uint(cursor + 20, 20));
                _put(frame + BEFORE, UNKNOWN);
                cursor += 40;
            }
            _put(frame + OWNER, _uint(cursor, 20));
            uint256 amountLength = (form & 31) + 1;
            _put(frame + AMOUNT, _uint(cursor + 20, amountLength));
            cursor += 20 + amountLength;
            _put(frame + NONCE, _uint(cursor, nonceLength));
            cursor += nonceLength;
            _put(frame + VALID_AFTER, _uint(cursor, 5));
            _put(frame + DEADLINE, _uint(cursor + 5, 5));
            cursor += 10;

            uint256 length = 64;
            if (form & PLAIN != 0) {
                length = _uint(cursor, 2);
                cursor += 2;
            }
            _put(frame + SIGNATURE_LENGTH, length);
            _put(frame + SETTLE_LENGTH, SIGNATURE - SETTLE_CALL + length);
            _copy(frame + SIGNATURE, cursor, length);
            cursor += length;

            uint256 approval = (SIGNATURE - SETTLE_CALL + length + 31) & ~uint256(31);
            _put(frame + TO_APPROVAL, SETTLE_CALL - BEFORE + approval);
            approval += frame + SETTLE_CALL;
            length = 0;
            if (form & APPROVAL != 0) {
                length = 4 + 7 * 32;
                cursor = _loadApproval(frame, approval + 32, cursor);
            }
            _put(approval, length);
            return (cursor, approval + 32 + length - frame - 28);
        }
    }

    /// @dev Writes the call of the token's permit for the approval at the cursor into memory.
    function _loadApproval(uint256 frame, uint256 call, uint256 cursor) private pure returns (uint256 next) {
        unchecked {
            uint256 length = _uint(cursor, 1);
            if (length == 0 || length > 32) revert Malformed();
            _put(call, PERMIT << 224);
            _put(call + 4, _get(frame + OWNER));
            _put(call + 36, uint160(PERMIT2));
            _put(call + 68, _uint(cursor + 1, length));
            cursor += 1 + length;
            length = _uint(cursor, 1);
            if (length > 32) revert Malformed();
            _put(call + 100, _uint(cursor + 1, length));
            cursor += 1 + length;
            uint256 s = _uint(cursor + 32, 32);
            _put(call + 132, 27 + (s >> 255));
            _put(call + 164, _uint(cursor, 32));
            _put(call + 196, s & (type(uint256).max >> 1));
            return cursor + 64;
        }
    }

    /// @return outcome Why the payment is not worth a call, or NOT_TRIED.
    function _skip(uint256 frame, uint256 form) private view returns (uint256 outcome) {
        if (block.timestamp < _get(frame + VALID_AFTER)) return TOO_EARLY;
        if (block.timestamp > _get(frame + DEADLINE)) return EXPIRED;
        if (form & PLAIN == 0 && _hasCode(frame)) return CODE;
        if (_isSpent(frame)) return SPENT;
    }

    /// @dev Calls `pay`. After a failure, the balance in the frame is still the right one, since all was undone.
    function _try(uint256 frame, uint256 size, uint256 bound) private returns (uint256 outcome) {
        bool ok;
        uint256 word;
        assembly ("memory-safe") {
            ok := call(bound, address(), 0, add(frame, 28), size, 0, 32)
            if gt(returndatasize(), 31) { word := mload(0) }
        }
        if (!ok) return word == NOT_EXACT ? NOT_EXACT : REVERTED;
        _put(frame + BEFORE, word);
        return SETTLED;
    }

    function _hasCode(uint256 frame) private view returns (bool) {
        return address(uint160(_get(frame + OWNER))).code.length != 0;
    }

    function _isSpent(uint256 frame) private view returns (bool) {
        uint256 nonce = _get(frame + NONCE);
        uint256 word = _ask(PERMIT2, NONCE_BITMAP, _get(frame + OWNER), nonce >> 8, gasleft());
        return word & (1 << (nonce & 255)) != 0;
    }

    function _newReports(uint256 count) private pure returns (Report[] memory reports) {
        reports = new Report[](count);
        for (uint256 i = 0; i < count; ++i) {
            reports[i].data = new bytes(MAX_DATA);
            _setLength(reports[i].data, 0);
        }
    }

    /// @dev Reads what a report says of the state before the payment.
    function _read(uint256 frame, Report memory report) private view {
        report.code = _hasCode(frame);
        report.spent = _isSpent(frame);
        address token = address(uint160(_get(frame + TOKEN)));
        uint256 owner = _get(frame + OWNER);
        report.balance = _ask(token, BALANCE_OF, owner, 0, READ_GAS); // the 0 is not read
        report.allowance = _ask(token, ALLOWANCE, owner, uint160(PERMIT2), READ_GAS);
    }

    /// @dev Completes a report. What a failed `pay` returned, less its first word, is still there to copy.
    function _finish(Report memory report, uint256 outcome) private pure {
        report.outcome = uint8(outcome);
        if (outcome != REVERTED) return;
        bytes memory data = report.data;
        assembly ("memory-safe") {
            if gt(returndatasize(), 32) {
                let length := sub(returndatasize(), 32)
                mstore(data, length)
                returndatacopy(add(data, 32), 32, length)
            }
        }
    }

    // What follows is the assembly: words of calldata and memory, and calls that copy no more than they have to.

    function _span(bytes calldata batch) private pure returns (uint256 start, uint256 end) {
        assembly ("memory-safe") {
            start := batch.offset
            end := add(start, batch.length)
        }
    }

    /// @dev Returns the number in `length` bytes of calldata, at most 32. No bytes are 0.
    function _uint(uint256 from, uint256 length) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(sub(256, shl(3, length)), calldataload(from))
        }
    }

    function _get(uint256 from) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := mload(from)
        }
    }

    function _put(uint256 to, uint256 value) private pure {
        assembly ("memory-safe") {
            mstore(to, value)
        }
    }

    function _copy(uint256 to, uint256 from, uint256 length) private pure {
        assembly ("memory-safe") {
            calldatacopy(to, from, length)
        }
    }

    function _setByte(bytes memory text, uint256 i, uint256 value) private pure {
        assembly ("memory-safe") {
            mstore8(add(add(text, 32), i), value)
        }
    }

    function _setLength(bytes memory text, uint256 length) private pure {
        assembly ("memory-safe") {
            mstore(text, length)
        }
    }

    /// @dev The frame is the last thing in memory, since its length depends on the signature. So nothing may allocate
    ///      memory while it is in use. Before it are 96 bytes for _ask.
    function _newFrame() private pure returns (uint256 frame) {
        assembly ("memory-safe") {
            frame := add(mload(0x40), 96)
        }
        _put(frame, uint32(this.pay.selector));
        _put(frame + 0x40, 0x60);
        _put(frame + SETTLE_CALL, SETTLE << 224);
        _put(frame + SIGNATURE_OFFSET, 0x100);
    }

    /// @dev Asks a view function with one or two arguments. The answer is 0 if it fails or returns less than a word.
    function _ask(address to, uint256 selector, uint256 first, uint256 second, uint256 limit)
        private
        view
        returns (uint256 word)
    {
        assembly ("memory-safe") {
            let input := mload(0x40)
            mstore(input, selector)
            mstore(add(input, 32), first)
            mstore(add(input, 64), second)
            if staticcall(limit, to, add(input, 28), 68, 0, 32) {
                if gt(returndatasize(), 31) { word := mload(0) }
            }
        }
    }

    /// @dev Returns a balance inside of `pay`, or fails.
    function _balanceOf(address token, address account) private view returns (uint256 word) {
        bool ok;
        bool whole;
        assembly ("memory-safe") {
            mstore(0, BALANCE_OF)
            mstore(32, account)
            ok := staticcall(gas(), token, 28, 36, 0, 32)
            whole := gt(returndatasize(), 31)
            word := mload(0)
        }
        if (!ok) _fail(REVERTED);
        if (!whole) _fail(NOT_EXACT);
    }

    function _call(address to, bytes calldata data) private returns (bool ok) {
        assembly ("memory-safe") {
            let input := mload(0x40)
            calldatacopy(input, data.offset, data.length)
            ok := call(gas(), to, 0, input, data.length, 0, 0)
        }
    }

    /// @dev Ends `pay`: reverts with the outcome and with the beginning of what the last call returned.
    function _fail(uint256 outcome) private pure {
        assembly ("memory-safe") {
            let length := returndatasize()
            if gt(length, MAX_DATA) { length := MAX_DATA }
            mstore(0, outcome)
            returndatacopy(32, 0, length)
            revert(0, add(length, 32))
        }
    }
}
