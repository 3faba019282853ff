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
///      - amount, validAfter (5), deadline (5), owner (20), nonce
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
    uint256 private constant PAIR = 0x20; // token and recipient follow
    uint256 private constant PLAIN = 0x40; // the signature has a length, and the owner may have code
    uint256 private constant APPROVAL = 0x80; // an EIP-2612 permit follows
    uint256 private constant MORE = 0xc0; // PLAIN and APPROVAL

    address private constant PROXY = 0x402085c248EeA27D92E8b30b2C58ed07f9E20001;
    address private constant PERMIT2 = 0x000000000022D473030F116dDEE9F6B43aC78BA3;

    // The selectors of the functions that it calls.
    // settle(((address,uint256),uint256,uint256),address,(address,uint256),bytes)
    uint256 private constant SETTLE = 0x13cd3b53;
    uint256 private constant PERMIT = 0xd505accf; // permit(address,address,uint256,uint256,uint8,bytes32,bytes32)
    uint256 private constant BALANCE_OF = 0x70a08231; // balanceOf(address)
    uint256 private constant ALLOWANCE = 0xdd62ed3e; // allowance(address,address)
    uint256 private constant NONCE_BITMAP = 0x4fe02b44; // nonceBitmap(address,uint256)

    // The topic of the event.
    uint256 private constant BATCH = 0xd0059994b1944de04b086ac66d095d1a5b2279a83e67ed88c68398aa4713b3d8;

    /// @dev The gas that one round of the loop needs besides the payment's own and the end of `settle` needs. About
    ///      twice of what was measured.
    uint256 private constant RESERVE = 30_000;
    /// @dev The gas of each read for a report.
    uint256 private constant READ_GAS = 100_000;
    uint256 private constant MAX_DATA = 256;
    /// @dev In place of a balance: the recipient's balance is not known.
    uint256 private constant UNKNOWN = 0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff;

    // The frame: memory that holds the call of `pay` for the current payment, at fixed addresses.
    uint256 private constant END = 0x80; // not of the frame: where the batch ends in the calldata
    uint256 private constant CALL = 0xbc; // 4 bytes of selector, then:
    uint256 private constant BEFORE = 0xc0; // the recipient's balance, or UNKNOWN
    uint256 private constant PERMIT_LENGTH = 0xe0; // the length of the token's permit call, which comes last, or 0
    uint256 private constant SETTLE_CALL = 0x100; // 4 bytes of selector, then the arguments of the proxy's settle:
    uint256 private constant TOKEN = 0x104;
    uint256 private constant AMOUNT = 0x124;
    uint256 private constant NONCE = 0x144;
    uint256 private constant DEADLINE = 0x164;
    uint256 private constant OWNER = 0x184;
    uint256 private constant RECIPIENT = 0x1a4;
    uint256 private constant VALID_AFTER = 0x1c4;
    uint256 private constant SIGNATURE_OFFSET = 0x1e4;
    uint256 private constant SIGNATURE_LENGTH = 0x204;
    uint256 private constant SIGNATURE = 0x224;
    uint256 private constant CALL_LENGTH = 0x1a8; // from CALL to the end of a compact signature
    uint256 private constant PERMIT_CALL_LENGTH = 4 + 7 * 32;
    uint256 private constant FRAME_END = 0x360; // for a signature of no bytes; for others it is as much higher

    uint256 private transient _locked;

    /// @notice Tries every payment of a batch in order. If the gas is about to run out, it stops, and what it has
    ///         settled stays. Records after that are not read.
    /// @return reports One for each payment if the flags ask for them, otherwise none.
    function settle(bytes calldata batch) external returns (Report[] memory reports) {
        if (_locked != 0) revert Reentered();
        _locked = 1;
        uint256 outcomes;
        (outcomes, reports) = _settle(batch);
        _locked = 0;
        assembly ("memory-safe") {
            let length := mload(outcomes)
            log1(sub(outcomes, 32), and(add(length, 95), not(31)), BATCH)
            if iszero(mload(reports)) {
                mstore(0, 32)
                mstore(32, 0)
                return(0, 64)
            }
        }
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

    /// @notice Makes the payment of which the calldata has the frame, or reverts. Only `settle` calls it, without
    ///         native coin. It is payable because that saves a check.
    /// @dev It returns the recipient's balance after the payment. What it reverts with begins with a word: the outcome.
    ///      If it runs out of gas, there is no word. The permit may fail: somebody else may have submitted it before.
    function pay() external payable {
        if (msg.sender != address(this)) revert OnlySelf();
        assembly {
            // Reverts with the outcome and the beginning of what the last call returned.
            function fail(outcome) {
                let length := returndatasize()
                if gt(length, MAX_DATA) { length := MAX_DATA }
                mstore(0, outcome)
                returndatacopy(32, 0, length)
                revert(0, add(length, 32))
            }
            function failBalance(ok) {
                if ok { fail(NOT_EXACT) }
                fail(REVERTED)
            }
            let token := calldataload(sub(TOKEN, CALL))
            let before := calldataload(sub(BEFORE, CALL))
            let end := calldatasize()
            if eq(before, UNKNOWN) {
                let length := calldataload(sub(PERMIT_LENGTH, CALL))
                if length {
                    end := sub(end, length)
                    calldatacopy(0, end, length)
                    pop(call(gas(), token, 0, 0, length, 0, 0))
                }
                mstore(0, BALANCE_OF)
                mstore(32, calldataload(sub(RECIPIENT, CALL)))
                let ok := staticcall(gas(), token, 28, 36, 0, 32)
                if iszero(and(ok, gt(returndatasize(), 31))) { failBalance(ok) }
                before := mload(0)
            }
            end := sub(end, sub(SETTLE_CALL, CALL))
            calldatacopy(0, sub(SETTLE_CALL, CALL), end)
            if iszero(call(gas(), PROXY, 0, 0, end, 0, 0)) { fail(REVERTED) }
            let recipient := calldataload(sub(RECIPIENT, CALL))
            mstore(0, BALANCE_OF)
            mstore(32, recipient)
            let ok := staticcall(gas(), token, 28, 36, 0, 32)
            if iszero(and(ok, gt(returndatasize(), 31))) { failBalance(ok) }
            // The balance of an owner who pays himself stays.
            let amount := mul(calldataload(sub(AMOUNT, CALL)), iszero(eq(recipient, calldataload(sub(OWNER, CALL)))))
            if sub(sub(mload(0), before), amount) { fail(NOT_EXACT) }
            return(0, 32)
        }
    }

    /// @return outcomes Where in memory the `bytes` of the event are.
    function _settle(bytes calldata batch) private returns (uint256 outcomes, Report[] memory reports) {
        unchecked {
            (uint256 cursor, uint256 end) = _span(batch);
            uint256 flags = _uint(cursor, 1);
            uint256 bound = _uint(cursor + 1, 4);
            uint256 count = _uint(cursor + 5, 2);
            if (batch.length < 7 || flags > 1) revert Malformed();
            if (count != 0 && _uint(cursor + 7, 1) & PAIR == 0) revert Malformed();
            outcomes = _newFrame(end, batch.length, count);
            // EIP-150 lets a call have 63/64 of the gas that is left. A byte of a signature costs less than 1 gas more.
            uint256 need = bound + bound / 63 + RESERVE + batch.length + 16 * count;
            if (flags != 0) {
                reports = _newReports(count);
                need += 3 * READ_GAS + (2000 + 4 * count) * count;
            }
            uint256 last = outcomes + 32 + count;
            uint256 place;
            (place, cursor) = _run(cursor + 7, bound, need, outcomes + 32, last, flags, reports);
            // A record that ends behind the batch was read as what follows it in the calldata. All of that is undone.
            if (place == last ? cursor != end : cursor > end) revert Malformed();
        }
    }

    /// @dev Tries the payments of which the records are at the cursor.
    /// @param place Where in memory the outcome of the first payment belongs, and `last` where those of all end.
    /// @return end The place behind the last outcome.
    /// @return next Where in the calldata the record of that outcome ends.
    function _run(
        uint256 cursor,
        uint256 bound,
        uint256 need,
        uint256 place,
        uint256 last,
        uint256 flags,
        Report[] memory reports
    ) private returns (uint256 end, uint256 next) {
        unchecked {
            while (true) {
                uint256 head;
                uint256 odd;
                uint256 stopped;
                // Most payments need no more than this loop: there is no reason against the call, the signature is
                // compact, no approval follows, no report is wanted, and the call succeeds.
                assembly ("memory-safe") {
                    for {} and(lt(place, last), gt(gas(), need)) { place := add(place, 1) } {
                        head := calldataload(cursor)
                        let form := shr(248, head)
                        cursor := add(cursor, 2)
                        if and(form, PAIR) {
                            mstore(TOKEN, shr(96, calldataload(cursor)))
                            mstore(RECIPIENT, shr(96, calldataload(add(cursor, 20))))
                            mstore(BEFORE, UNKNOWN)
                            cursor := add(cursor, 40)
                        }
                        let length := and(form, 31) // of the amount, less 1
                        mstore(AMOUNT, shr(sub(248, shl(3, length)), calldataload(cursor)))
                        cursor := add(add(cursor, 1), length)
                        let time := calldataload(cursor)
                        mstore(VALID_AFTER, shr(216, time))
                        odd := or(or(and(form, MORE), flags), gt(shr(216, time), timestamp()))
                        time := and(shr(176, time), 0xffffffffff)
                        mstore(DEADLINE, time)
                        odd := or(odd, lt(time, timestamp()))
                        let owner := shr(96, calldataload(add(cursor, 10)))
                        if sub(owner, mload(OWNER)) {
                            mstore(OWNER, owner)
                            odd := or(odd, extcodesize(owner))
                        }
                        cursor := add(cursor, 30)
                        length := byte(1, head)
                        odd := or(odd, gt(length, 32))
                        mstore(NONCE, shr(sub(256, shl(3, length)), calldataload(cursor)))
                        cursor := add(cursor, length)
                        if odd {
                            stopped := 1
                            break
                        }
                        calldatacopy(SIGNATURE, cursor, 64)
                        cursor := add(cursor, 64)
                        if iszero(call(bound, address(), 0, CALL, CALL_LENGTH, BEFORE, 32)) {
                            stopped := 1
                            break
                        }
                        mstore8(place, SETTLED)
                    }
                }
                if (stopped == 0) return (place, cursor);
                uint256 outcome;
                if (odd == 0) outcome = _explain();
                else (cursor, outcome) = _slow(head, cursor, bound, reports, reports.length + place - last);
                _setByte(place++, outcome);
            }
        }
    }

    /// @dev Makes the call for any form of record, or says why not, and writes the report if there is one.
    /// @param head The word with which the record begins.
    /// @param cursor Where its signature begins.
    /// @return next Where the record ends.
    function _slow(uint256 head, uint256 cursor, uint256 bound, Report[] memory reports, uint256 i)
        private
        returns (uint256 next, uint256 outcome)
    {
        unchecked {
            uint256 form = head >> 248;
            uint256 length = 64;
            if (form & PLAIN != 0) {
                length = _uint(cursor, 2);
                cursor += 2;
            }
            next = cursor + length;
            if (uint8(head >> 240) > 32 || next > _get(END)) revert Malformed();
            _put(SIGNATURE_LENGTH, length);
            _copy(SIGNATURE, cursor, length);
            uint256 size = SIGNATURE - CALL + length;
            if (form & APPROVAL != 0) {
                next = _loadApproval(CALL + size, next);
                _put(PERMIT_LENGTH, PERMIT_CALL_LENGTH);
                _put(BEFORE, UNKNOWN); // since `pay` looks for a permit only then
                size += PERMIT_CALL_LENGTH;
            }
            if (reports.length != 0) _read(reports[i]);
            outcome = _reason(form);
            if (outcome == NOT_TRIED) {
                outcome = _pay(size, bound);
                if (outcome != SETTLED) {
                    if (reports.length != 0) _keepReturned(reports[i].data);
                    outcome = _explain();
                }
            }
            if (reports.length != 0) {
                reports[i].outcome = uint8(outcome);
                if (outcome != REVERTED) _put(_start(reports[i].data) - 32, 0);
            }
            // As the loop expects it: OWNER is the last owner that has no code, and address 0 has none.
            _put(OWNER, 0);
            _put(SIGNATURE_LENGTH, 64);
            _put(PERMIT_LENGTH, 0);
        }
    }

    /// @dev Writes the call of the token's permit for the approval at the cursor into memory.
    function _loadApproval(uint256 to, uint256 cursor) private pure returns (uint256 next) {
        unchecked {
            uint256 length = _uint(cursor, 1);
            if (length == 0 || length > 32) revert Malformed();
            _put(to, PERMIT << 224);
            _put(to + 4, _get(OWNER));
            _put(to + 36, uint160(PERMIT2));
            _put(to + 68, _uint(cursor + 1, length));
            cursor += 1 + length;
            length = _uint(cursor, 1);
            if (length > 32) revert Malformed();
            _put(to + 100, _uint(cursor + 1, length));
            cursor += 1 + length;
            uint256 s = _uint(cursor + 32, 32);
            _put(to + 132, 27 + (s >> 255));
            _put(to + 164, _uint(cursor, 32));
            _put(to + 196, s & (type(uint256).max >> 1));
            return cursor + 64;
        }
    }

    /// @return outcome Why the payment is not worth a call, or NOT_TRIED.
    function _reason(uint256 form) private view returns (uint256 outcome) {
        if (block.timestamp < _get(VALID_AFTER)) return TOO_EARLY;
        if (block.timestamp > _get(DEADLINE)) return EXPIRED;
        if (form & PLAIN == 0 && _hasCode()) return CODE;
        if (_isSpent()) return SPENT;
    }

    /// @dev Says why `pay` failed. The frame holds the word that it returned in place of a balance, so the next payment
    ///      reads the balance again.
    function _explain() private view returns (uint256 outcome) {
        outcome = _returned() > 31 && _get(BEFORE) == NOT_EXACT ? NOT_EXACT : _isSpent() ? SPENT : REVERTED;
        _put(BEFORE, UNKNOWN);
    }

    function _hasCode() private view returns (bool) {
        return address(uint160(_get(OWNER))).code.length != 0;
    }

    function _isSpent() private view returns (bool) {
        uint256 nonce = _get(NONCE);
        return _ask(PERMIT2, NONCE_BITMAP, _get(OWNER), nonce >> 8, gasleft()) & (1 << (nonce & 255)) != 0;
    }

    function _newReports(uint256 count) private pure returns (Report[] memory reports) {
        reports = new Report[](count);
        for (uint256 i = 0; i < count; ++i) {
            reports[i].data = new bytes(MAX_DATA);
            _put(_start(reports[i].data) - 32, 0);
        }
    }

    /// @dev Reads what a report says of the state before the payment.
    function _read(Report memory report) private view {
        address token = address(uint160(_get(TOKEN)));
        uint256 owner = _get(OWNER);
        report.code = _hasCode();
        report.spent = _isSpent();
        report.balance = _ask(token, BALANCE_OF, owner, 0, READ_GAS); // the 0 is not read
        report.allowance = _ask(token, ALLOWANCE, owner, uint160(PERMIT2), READ_GAS);
    }

    // What follows is words of calldata and memory, and calls that copy no more than they have to.

    function _span(bytes calldata batch) private pure returns (uint256 start, uint256 end) {
        assembly ("memory-safe") {
            start := batch.offset
            end := add(start, batch.length)
        }
    }

    function _start(bytes memory text) private pure returns (uint256 start) {
        assembly ("memory-safe") {
            start := add(text, 32)
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

    function _setByte(uint256 to, uint256 value) private pure {
        assembly ("memory-safe") {
            mstore8(to, value)
        }
    }

    function _copy(uint256 to, uint256 from, uint256 length) private pure {
        assembly ("memory-safe") {
            calldatacopy(to, from, length)
        }
    }

    function _returned() private pure returns (uint256 length) {
        assembly ("memory-safe") {
            length := returndatasize()
        }
    }

    /// @dev Keeps what `pay` reverted with, less its first word. `pay` returns no more than MAX_DATA after that word.
    function _keepReturned(bytes memory data) private pure {
        assembly ("memory-safe") {
            if gt(returndatasize(), 32) {
                let length := sub(returndatasize(), 32)
                mstore(data, length)
                returndatacopy(add(data, 32), 32, length)
            }
        }
    }

    /// @dev Lays out memory, of which nothing is in use before: the frame, room for a signature as long as the batch,
    ///      and the event's data.
    /// @return outcomes The `bytes` in the event's data, all NOT_TRIED.
    function _newFrame(uint256 end, uint256 length, uint256 count) private pure returns (uint256 outcomes) {
        unchecked {
            outcomes = FRAME_END + length + 32;
            _put(0x40, outcomes + 32 + ((count + 31) & ~uint256(31)));
            _put(END, end);
            _put(CALL - 28, uint32(this.pay.selector));
            _put(SETTLE_CALL, SETTLE << 224);
            _put(SIGNATURE_OFFSET, 0x100);
            _put(SIGNATURE_LENGTH, 64);
            _put(outcomes - 32, 32);
            _put(outcomes, count);
        }
    }

    /// @dev Calls `pay` with the frame. A frame with a compact signature and no approval has the length CALL_LENGTH.
    function _pay(uint256 length, uint256 bound) private returns (uint256 outcome) {
        assembly ("memory-safe") {
            outcome := call(bound, address(), 0, CALL, length, BEFORE, 32)
        }
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
}
