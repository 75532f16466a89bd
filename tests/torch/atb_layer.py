"""One decoding step of a small attention layer, made of torch_npu's own functions that run on ATB.

Prints each function with how far its result is from that of the processor. With `damage` as argument, the cache of keys
is overwritten behind everybody's back between two of them.
"""

import ctypes
import math
import sys

import torch
import torch_npu

TOKENS, HEADS, WIDTH, BLOCKS, BLOCK_TOKENS = 6, 2, 16, 4, 8
HOST_TO_DEVICE = 1
DEVICE = "npu:0"


def half(*shape):
    return torch.randn(*shape, dtype=torch.float16)


def difference(result, expected):
    return (result.cpu().float() - expected.float()).abs().max().item()


def rotary_embedding():
    positions, query, key = torch.arange(TOKENS), half(TOKENS, HEADS * WIDTH), half(TOKENS, HEADS * WIDTH)
    frequencies = 1 / (10000 ** (torch.arange(0, WIDTH, 2).float() / WIDTH))
    angles = torch.outer(torch.arange(16).float(), frequencies)
    table = torch.cat([angles.cos(), angles.sin()], -1).half()
    on_card = query.to(DEVICE), key.to(DEVICE)
    torch_npu._npu_rotary_embedding(positions.to(DEVICE), *on_card, WIDTH, table.to(DEVICE), True)

    def turned(states):
        cosine, sine = (part[:, None] for part in table[positions].float().chunk(2, -1))
        left, right = states.view(TOKENS, HEADS, WIDTH).float().chunk(2, -1)
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1).view(TOKENS, -1)

    return max(difference(on_card[0], turned(query)), difference(on_card[1], turned(key)))


def reshape_and_cache(caches, key_cache, value_cache):
    key, value = half(TOKENS, HEADS, WIDTH), half(TOKENS, HEADS, WIDTH)
    slots = torch.tensor([0, 1, 9, 10, 17, 31], dtype=torch.int32)
    torch_npu._npu_reshape_and_cache(key.to(DEVICE), value.to(DEVICE), *caches, slots.to(DEVICE))
    for token, slot in enumerate(slots.tolist()):
        key_cache[slot // BLOCK_TOKENS, slot % BLOCK_TOKENS] = key[token]
        value_cache[slot // BLOCK_TOKENS, slot % BLOCK_TOKENS] = value[token]
    return max(difference(caches[0], key_cache), difference(caches[1], value_cache))


def paged_attention(caches, key_cache, value_cache):
    query, table, lengths = half(2, HEADS, WIDTH), torch.tensor([[0, 1], [2, 3]]).int(), torch.tensor([5, 12]).int()
    result = torch.zeros(2, HEADS, WIDTH, dtype=torch.float16, device=DEVICE)
    torch_npu._npu_paged_attention(
        query=query.to(DEVICE),
        key_cache=caches[0],
        value_cache=caches[1],
        num_kv_heads=HEADS,
        num_heads=HEADS,
        scale_value=1 / math.sqrt(WIDTH),
        block_table=table.to(DEVICE),
        context_lens=lengths,
        out=result,
    )
    expected = torch.zeros(2, HEADS, WIDTH)
    for row, (blocks, length) in enumerate(zip(table.tolist(), lengths.tolist())):
        keys, values = (torch.cat([cache[block] for block in blocks])[:length] for cache in (key_cache, value_cache))
        expected[row] = attended(query[row : row + 1], keys, values)[0]
    return difference(result, expected)


def attended(query, keys, values, mask=0.0):
    """What tokens get from all keys and values: of shape (tokens, heads, width)."""
    scores = torch.einsum("qhw,khw->hqk", query.float(), keys.float()) / math.sqrt(WIDTH) + mask
    return torch.einsum("hqk,khw->qhw", torch.softmax(scores, -1), values.float())


def paged_attention_of_chunks(caches, key_cache, value_cache):
    lengths, contexts, table = [2, 3], [5, 12], [[0, 1], [2, 3]]
    query, mask = half(sum(lengths), HEADS, WIDTH), half(sum(lengths), 2 * BLOCK_TOKENS)
    result = torch.zeros(sum(lengths), HEADS, WIDTH, dtype=torch.float16, device=DEVICE)
    torch_npu._npu_paged_attention_splitfuse(
        query=query.to(DEVICE),
        key_cache=caches[0],
        value_cache=caches[1],
        block_table=torch.tensor(table).int().to(DEVICE),
        context_lens=torch.tensor(contexts).int(),
        mask=mask.to(DEVICE),
        seq_len=torch.tensor(lengths).int(),
        num_kv_heads=HEADS,
        num_heads=HEADS,
        scale_value=1 / math.sqrt(WIDTH),
        out=result,
    )
    expected, first = torch.zeros(sum(lengths), HEADS, WIDTH), 0
    for length, context, blocks in zip(lengths, contexts, table):
        keys, values = (torch.cat([cache[block] for block in blocks])[:context] for cache in (key_cache, value_cache))
        rows = slice(first, first + length)
        expected[rows] = attended(query[rows], keys, values, mask[rows, :context].float())
        first += length
    return difference(result, expected)


def flash_attention(with_mask):
    lengths = [2, 4]
    query, key, value = (half(TOKENS, HEADS, WIDTH) for _ in range(3))
    mask = half(4, 4)
    result = torch.zeros(TOKENS, HEADS, WIDTH, dtype=torch.float16, device=DEVICE)
    on_card = [tensor.to(DEVICE) for tensor in (query, key, value)]
    settings = torch.tensor(lengths).int(), 1 / math.sqrt(WIDTH), HEADS, HEADS, result
    if with_mask:
        torch_npu._npu_flash_attention(*on_card, mask.to(DEVICE), *settings)
    else:
        torch_npu._npu_flash_attention_unpad(*on_card, *settings)
    expected, first = torch.zeros(TOKENS, HEADS, WIDTH), 0
    for length in lengths:
        rows = slice(first, first + length)
        added = mask[:length, :length].float() if with_mask else 0.0
        expected[rows] = attended(query[rows], key[rows], value[rows], added)
        first += length
    return difference(result, expected)


def cache_of_keys_alone():
    cache, key = half(BLOCKS, BLOCK_TOKENS, HEADS, WIDTH), half(TOKENS, HEADS, WIDTH)
    slots = torch.tensor([3, 8, 9, 20, 21, 30], dtype=torch.int32)
    on_card = cache.to(DEVICE)
    torch_npu._npu_reshape_and_cache_siso(key.to(DEVICE), on_card, slots.to(DEVICE))
    for token, slot in enumerate(slots.tolist()):
        cache[slot // BLOCK_TOKENS, slot % BLOCK_TOKENS] = key[token]
    return difference(on_card, cache)


def group_topk():
    """Only experts of the best groups are left: of four groups two, told apart by their best expert."""
    experts, groups, kept = 16, 4, 2
    scores = torch.randperm(TOKENS * experts).view(TOKENS, experts).half() / (TOKENS * experts)
    on_card = scores.to(DEVICE)
    torch_npu._npu_group_topk(on_card, k=kept, group_num=groups, n=1)
    best = scores.view(TOKENS, groups, -1).amax(-1).topk(kept).indices
    left = torch.zeros(TOKENS, groups, dtype=torch.bool).scatter_(1, best, True)
    return difference(on_card, scores * left.repeat_interleave(experts // groups, 1))


def matmul_add():
    left, right, total = half(8, 4), half(8, 5), torch.randn(4, 5)
    on_card = total.to(DEVICE)
    torch_npu._npu_matmul_add_fp32(left.to(DEVICE), right.to(DEVICE), on_card)
    return difference(on_card, total + left.float().t() @ right.float())


def damage(victim):
    """Writes to memory behind the back of every operator."""
    runtime = ctypes.CDLL("libascendcl.so")
    runtime.aclrtMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    junk = ctypes.create_string_buffer(b"\7" * 16, 16)
    torch.npu.synchronize()
    assert runtime.aclrtMemcpy(victim.data_ptr(), 16, ctypes.addressof(junk), 16, HOST_TO_DEVICE) == 0


def main():
    torch.manual_seed(0)
    key_cache, value_cache = (half(BLOCKS, BLOCK_TOKENS, HEADS, WIDTH) for _ in range(2))
    caches = key_cache.to(DEVICE), value_cache.to(DEVICE)
    print("rotary embedding", rotary_embedding())
    print("reshape and cache", reshape_and_cache(caches, key_cache, value_cache))
    if "damage" in sys.argv:
        damage(caches[0])
        key_cache.copy_(caches[0].cpu())
    print("paged attention", paged_attention(caches, key_cache, value_cache))
    print("matmul and add", matmul_add())
    print("paged attention of chunks", paged_attention_of_chunks(caches, key_cache, value_cache))
    print("flash attention", flash_attention(with_mask=True))
    print("flash attention without a mask", flash_attention(with_mask=False))
    print("cache of keys alone", cache_of_keys_alone())
    print("group top-k", group_topk())


main()
