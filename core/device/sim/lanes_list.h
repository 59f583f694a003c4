// lanes_list: the operations that are the same expression in each lane: X(name, type of the result,
// types of the operands, expression over a, b, c). `mode` is the operation's modifier word.
// Expanded once for their numbers (lanes.h) and once, by each instruction set, for the code.
//
// Loops over the lanes of SIM_MAP_* become vector code and are written twice, with and without a
// mask. Those of SIM_SLOW_* call functions or are rare: one loop over the lanes that are active.
#ifndef KILN_DEVICE_SIM_LANES_LIST_H
#define KILN_DEVICE_SIM_LANES_LIST_H

// clang-format off
#define SIM_MAP1(X) \
    X(MOV_B32, u32, u32, a) \
    X(MOV_B64, u64, u64, a) \
    X(NOT_B16, u16, u16, ~a) \
    X(NOT_B32, u32, u32, ~a) \
    X(NOT_B64, u64, u64, ~a) \
    X(CNOT_B16, u16, u16, a == 0) \
    X(CNOT_B32, u32, u32, a == 0) \
    X(CNOT_B64, u64, u64, a == 0) \
    X(NEG_B16, u16, u16, 0u - a) \
    X(NEG_B32, u32, u32, 0u - a) \
    X(NEG_B64, u64, u64, 0ull - a) \
    X(ABS_S16, u16, s16, a < 0 ? 0u - (u16)a : (u16)a) \
    X(ABS_S32, u32, s32, a < 0 ? 0u - (u32)a : (u32)a) \
    X(ABS_S64, u64, s64, a < 0 ? 0ull - (u64)a : (u64)a) \
    X(NEG_F32, u32, u32, (a & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : a ^ 0x80000000u) \
    X(NEG_FTZ_F32, u32, f32, f32_bits(f32_canonical(-f32_flush(a)))) \
    X(ABS_F32, u32, u32, (a & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : a & 0x7fffffffu) \
    X(ABS_FTZ_F32, u32, f32, f32_bits(f32_canonical(f32_flush(a))) & 0x7fffffffu) \
    X(NEG_F16, u16, u16, (a & 0x7fffu) > 0x7c00u ? 0x7fffu : a ^ 0x8000u) \
    X(ABS_F16, u16, u16, (a & 0x7fffu) > 0x7c00u ? 0x7fffu : a & 0x7fffu) \
    X(NEG_BF16, u16, u16, (a & 0x7fffu) > 0x7f80u ? 0x7fffu : a ^ 0x8000u) \
    X(ABS_BF16, u16, u16, (a & 0x7fffu) > 0x7f80u ? 0x7fffu : a & 0x7fffu) \
    X(EX2_F32, f32, f32, f32_exp2(a, 0)) \
    X(EX2_FTZ_F32, f32, f32, f32_exp2(f32_flush(a), 1)) \
    X(RCP_F32, f32, f32, f32_canonical(1.0f / a)) \
    X(RCP_FTZ_F32, f32, f32, f32_canonical(f32_flush(1.0f / f32_flush(a)))) \
    X(CVT_U32_U16, u32, u16, a) \
    X(CVT_S32_S16, u32, s16, (s32)a) \
    X(CVT_U64_U32, u64, u32, a) \
    X(CVT_S64_S32, u64, s32, (s64)a) \
    X(CVT_U32_U64, u32, u64, (u32)a) \
    X(CVT_U16_U32, u16, u32, (u16)a) \
    X(CVT_F32_S32, f32, s32, (f32)a) \
    X(CVT_F32_F16, f32, u16, f16_to_f32(a)) \
    X(CVT_F16_F32, u16, f32, f16_from_f32(a)) \
    X(CVT_F32_BF16, f32, u16, bf16_to_f32(a)) \
    X(CVT_BF16_F32, u16, f32, bf16_from_f32(a))

#define SIM_MAP2(X) \
    X(ADD_B16, u16, u16, u16, a + b) \
    X(ADD_B32, u32, u32, u32, a + b) \
    X(ADD_B64, u64, u64, u64, a + b) \
    X(SUB_B16, u16, u16, u16, a - b) \
    X(SUB_B32, u32, u32, u32, a - b) \
    X(SUB_B64, u64, u64, u64, a - b) \
    X(MUL_LO_B16, u16, u16, u16, (u32)a * (u32)b) \
    X(MUL_LO_B32, u32, u32, u32, a * b) \
    X(MUL_LO_B64, u64, u64, u64, a * b) \
    X(MUL_HI_U16, u16, u16, u16, (u32)a * (u32)b >> 16) \
    X(MUL_HI_S16, u16, s16, s16, (s32)a * (s32)b >> 16) \
    X(MUL_HI_U32, u32, u32, u32, (u64)a * b >> 32) \
    X(MUL_HI_S32, u32, s32, s32, (s64)a * b >> 32) \
    X(MUL_WIDE_U16, u32, u16, u16, (u32)a * b) \
    X(MUL_WIDE_S16, u32, s16, s16, (s32)a * b) \
    X(MUL_WIDE_U32, u64, u32, u32, (u64)a * b) \
    X(MUL_WIDE_S32, u64, s32, s32, (s64)a * b) \
    X(AND_B16, u16, u16, u16, a & b) \
    X(AND_B32, u32, u32, u32, a & b) \
    X(AND_B64, u64, u64, u64, a & b) \
    X(OR_B16, u16, u16, u16, a | b) \
    X(OR_B32, u32, u32, u32, a | b) \
    X(OR_B64, u64, u64, u64, a | b) \
    X(XOR_B16, u16, u16, u16, a ^ b) \
    X(XOR_B32, u32, u32, u32, a ^ b) \
    X(XOR_B64, u64, u64, u64, a ^ b) \
    X(SHL_B16, u16, u16, u32, int_shl32(a, b)) \
    X(SHL_B32, u32, u32, u32, int_shl32(a, b)) \
    X(SHL_B64, u64, u64, u32, int_shl64(a, b)) \
    X(SHR_U16, u16, u16, u32, int_shr32(a, b)) \
    X(SHR_U32, u32, u32, u32, int_shr32(a, b)) \
    X(SHR_U64, u64, u64, u32, int_shr64(a, b)) \
    X(SHR_S16, u16, s16, u32, int_sar32(a, b)) \
    X(SHR_S32, u32, s32, u32, int_sar32(a, b)) \
    X(SHR_S64, u64, s64, u32, int_sar64(a, b)) \
    X(MIN_U16, u16, u16, u16, a < b ? a : b) \
    X(MIN_S16, u16, s16, s16, a < b ? a : b) \
    X(MIN_U32, u32, u32, u32, a < b ? a : b) \
    X(MIN_S32, u32, s32, s32, a < b ? a : b) \
    X(MIN_U64, u64, u64, u64, a < b ? a : b) \
    X(MIN_S64, u64, s64, s64, a < b ? a : b) \
    X(MAX_U16, u16, u16, u16, a > b ? a : b) \
    X(MAX_S16, u16, s16, s16, a > b ? a : b) \
    X(MAX_U32, u32, u32, u32, a > b ? a : b) \
    X(MAX_S32, u32, s32, s32, a > b ? a : b) \
    X(MAX_U64, u64, u64, u64, a > b ? a : b) \
    X(MAX_S64, u64, s64, s64, a > b ? a : b) \
    X(ADD_F32, f32, f32, f32, f32_canonical(a + b)) \
    X(SUB_F32, f32, f32, f32, f32_canonical(a - b)) \
    X(MUL_F32, f32, f32, f32, f32_canonical(a * b)) \
    X(ADD_X_F32, f32, f32, f32, f32_result(SIM_IN(a) + SIM_IN(b), SIM_FTZ, SIM_SAT)) \
    X(SUB_X_F32, f32, f32, f32, f32_result(SIM_IN(a) - SIM_IN(b), SIM_FTZ, SIM_SAT)) \
    X(MUL_X_F32, f32, f32, f32, f32_result(SIM_IN(a) * SIM_IN(b), SIM_FTZ, SIM_SAT)) \
    X(DIV_F32, f32, f32, f32, f32_canonical(a / b)) \
    X(DIV_FTZ_F32, f32, f32, f32, f32_result(f32_flush(a) / f32_flush(b), 1, 0)) \
    X(MIN_F32, f32, f32, f32, f32_min(a, b, 0)) \
    X(MAX_F32, f32, f32, f32, f32_max(a, b, 0)) \
    X(MIN_X_F32, f32, f32, f32, f32_min(SIM_IN(a), SIM_IN(b), SIM_NAN)) \
    X(MAX_X_F32, f32, f32, f32, f32_max(SIM_IN(a), SIM_IN(b), SIM_NAN)) \
    X(COPYSIGN_F32, u32, u32, u32, (a & 0x80000000u) | (b & 0x7fffffffu)) \
    X(ADD_F64, f64, f64, f64, f64_canonical(a + b)) \
    X(SUB_F64, f64, f64, f64, f64_canonical(a - b)) \
    X(MUL_F64, f64, f64, f64, f64_canonical(a * b)) \
    X(DIV_F64, f64, f64, f64, f64_canonical(a / b)) \
    X(MIN_F64, f64, f64, f64, f64_min(a, b)) \
    X(MAX_F64, f64, f64, f64, f64_max(a, b)) \
    X(COPYSIGN_F64, u64, u64, u64, (a & (1ull << 63)) | (b & (UINT64_MAX >> 1))) \
    X(PACK_B16, u32, u16, u16, (u32)a | (u32)b << 16) \
    X(PACK_B32, u64, u32, u32, (u64)a | (u64)b << 32) \
    X(CVT_F16X2_F32, u32, f32, f32, (u32)f16_from_f32(a) << 16 | f16_from_f32(b)) \
    X(CVT_BF16X2_F32, u32, f32, f32, (u32)bf16_from_f32(a) << 16 | bf16_from_f32(b))

#define SIM_MAP3(X) \
    X(MAD_LO_B16, u16, u16, u16, u16, (u32)a * (u32)b + c) \
    X(MAD_LO_B32, u32, u32, u32, u32, a * b + c) \
    X(MAD_LO_B64, u64, u64, u64, u64, a * b + c) \
    X(MAD_HI_U32, u32, u32, u32, u32, ((u64)a * b >> 32) + c) \
    X(MAD_HI_S32, u32, s32, s32, u32, (u32)((s64)a * b >> 32) + c) \
    X(MAD_WIDE_U16, u32, u16, u16, u32, (u32)a * b + c) \
    X(MAD_WIDE_S16, u32, s16, s16, u32, (u32)((s32)a * b) + c) \
    X(MAD_WIDE_U32, u64, u32, u32, u64, (u64)a * b + c) \
    X(MAD_WIDE_S32, u64, s32, s32, u64, (u64)((s64)a * b) + c) \
    X(SHF_L_CLAMP, u32, u32, u32, u32, \
            (u32)((((u64)b << 32 | a) << (c > 32 ? 32 : c)) >> 32)) \
    X(SHF_R_CLAMP, u32, u32, u32, u32, (u32)(((u64)b << 32 | a) >> (c > 32 ? 32 : c))) \
    X(SHF_L_WRAP, u32, u32, u32, u32, (u32)((((u64)b << 32 | a) << (c & 31)) >> 32)) \
    X(SHF_R_WRAP, u32, u32, u32, u32, (u32)(((u64)b << 32 | a) >> (c & 31))) \
    X(LOP3_B32, u32, u32, u32, u32, int_lop3(a, b, c, op->mode)) \
    X(SAD_U32, u32, u32, u32, u32, c + (a > b ? a - b : b - a)) \
    X(SAD_S32, u32, s32, s32, u32, c + (a > b ? (u32)a - (u32)b : (u32)b - (u32)a)) \
    X(SLCT_B32_S32, u32, u32, u32, s32, c >= 0 ? a : b) \
    X(SLCT_B64_S32, u64, u64, u64, s32, c >= 0 ? a : b) \
    X(SLCT_B32_F32, u32, u32, u32, f32, c >= 0.0f ? a : b) \
    X(SLCT_B64_F32, u64, u64, u64, f32, c >= 0.0f ? a : b)

// Fused multiply-add has an instruction of its own or a library call, never a vector of calls.
#define SIM_MAP_FMA(X) \
    X(FMA_F32, f32, f32, f32, f32, f32_canonical(SIM_FMAF(a, b, c))) \
    X(FMA_X_F32, f32, f32, f32, f32, \
            f32_result(SIM_FMAF(SIM_IN(a), SIM_IN(b), SIM_IN(c)), SIM_FTZ, SIM_SAT)) \
    X(FMA_F64, f64, f64, f64, f64, f64_canonical(SIM_FMA(a, b, c)))

#define SIM_SLOW1(X) \
    X(POPC_B32, u32, u32, (u32)__builtin_popcount(a)) \
    X(POPC_B64, u32, u64, (u32)__builtin_popcountll(a)) \
    X(CLZ_B32, u32, u32, int_clz32(a)) \
    X(CLZ_B64, u32, u64, int_clz64(a)) \
    X(BREV_B32, u32, u32, int_reverse(a)) \
    X(BREV_B64, u64, u64, int_reverse64(a)) \
    X(BFIND_U32, u32, u32, int_find_u64(a)) \
    X(BFIND_S32, u32, s32, int_find_s64(a)) \
    X(BFIND_U64, u32, u64, int_find_u64(a)) \
    X(BFIND_S64, u32, s64, int_find_s64(a)) \
    X(BFIND_SHIFT_U32, u32, u32, a ? 31 - int_find_u64(a) : UINT32_MAX) \
    X(BFIND_SHIFT_S32, u32, s32, int_find_s64(a) <= 31 ? 31 - int_find_s64(a) : UINT32_MAX) \
    X(BFIND_SHIFT_U64, u32, u64, a ? 63 - int_find_u64(a) : UINT32_MAX) \
    X(BFIND_SHIFT_S64, u32, s64, int_find_s64(a) <= 63 ? 63 - int_find_s64(a) : UINT32_MAX) \
    X(SQRT_F32, f32, f32, f32_result(sqrtf(SIM_IN(a)), SIM_FTZ, 0)) \
    X(RSQRT_F32, f32, f32, f32_result((float)(1.0 / sqrt((double)SIM_IN(a))), SIM_FTZ, 0)) \
    X(SIN_F32, f32, f32, f32_result((float)sin((double)SIM_IN(a)), SIM_FTZ, 0)) \
    X(COS_F32, f32, f32, f32_result((float)cos((double)SIM_IN(a)), SIM_FTZ, 0)) \
    X(LG2_F32, f32, f32, f32_result((float)log2((double)SIM_IN(a)), SIM_FTZ, 0)) \
    X(TANH_F32, f32, f32, f32_result((float)tanh((double)a), 0, 0)) \
    X(NEG_F64, f64, f64, f64_canonical(-a)) \
    X(ABS_F64, f64, f64, f64_canonical(fabs(a))) \
    X(RCP_F64, f64, f64, f64_canonical(1.0 / a)) \
    X(RCP_APPROX_F64, f64, f64, f64_approx(1.0 / f64_flush(a))) \
    X(SQRT_F64, f64, f64, f64_canonical(sqrt(a))) \
    X(RSQRT_F64, f64, f64, f64_approx(1.0 / sqrt(f64_flush(a)))) \
    X(NEG_F16X2, u32, u32, SIM_BOTH1(h_neg_f16)) \
    X(ABS_F16X2, u32, u32, SIM_BOTH1(h_abs_f16)) \
    X(NEG_BF16X2, u32, u32, SIM_BOTH1(h_neg_bf16)) \
    X(ABS_BF16X2, u32, u32, SIM_BOTH1(h_abs_bf16)) \
    X(EX2_F16, u16, u16, h_ex2_f16(a, op->mode)) \
    X(EX2_F16X2, u32, u32, SIM_BOTH1(h_ex2_f16)) \
    X(EX2_BF16, u16, u16, h_ex2_bf16(a, op->mode)) \
    X(EX2_BF16X2, u32, u32, SIM_BOTH1(h_ex2_bf16)) \
    X(TANH_F16, u16, u16, h_tanh_f16(a, op->mode)) \
    X(TANH_F16X2, u32, u32, SIM_BOTH1(h_tanh_f16)) \
    X(TANH_BF16, u16, u16, h_tanh_bf16(a, op->mode)) \
    X(TANH_BF16X2, u32, u32, SIM_BOTH1(h_tanh_bf16))

#define SIM_SLOW2(X) \
    X(MUL_HI_U64, u64, u64, u64, int_mul_hi_u64(a, b)) \
    X(MUL_HI_S64, u64, s64, s64, int_mul_hi_s64(a, b)) \
    X(MUL24_LO_U32, u32, u32, u32, (a & 0xffffffu) * (b & 0xffffffu)) \
    X(MUL24_HI_U32, u32, u32, u32, (u64)(a & 0xffffffu) * (b & 0xffffffu) >> 16) \
    X(MUL24_LO_S32, u32, u32, u32, (u32)((s32)(a << 8) >> 8) * (u32)((s32)(b << 8) >> 8)) \
    X(MUL24_HI_S32, u32, u32, u32, (s64)((s32)(a << 8) >> 8) * ((s32)(b << 8) >> 8) >> 16) \
    X(DIV_U16, u16, u16, u16, b ? a / b : 65535u) \
    X(DIV_S16, u16, s16, s16, int_div_s32(a, b)) \
    X(DIV_U32, u32, u32, u32, int_div_u32(a, b)) \
    X(DIV_S32, u32, s32, s32, int_div_s32(a, b)) \
    X(DIV_U64, u64, u64, u64, int_div_u64(a, b)) \
    X(DIV_S64, u64, s64, s64, int_div_s64(a, b)) \
    X(REM_U16, u16, u16, u16, b ? a % b : a) \
    X(REM_S16, u16, s16, s16, int_rem_s32(a, b)) \
    X(REM_U32, u32, u32, u32, int_rem_u32(a, b)) \
    X(REM_S32, u32, s32, s32, int_rem_s32(a, b)) \
    X(REM_U64, u64, u64, u64, int_rem_u64(a, b)) \
    X(REM_S64, u64, s64, s64, int_rem_s64(a, b)) \
    X(ADD_SAT_S32, u32, s32, s32, int_add_sat(a, b)) \
    X(SUB_SAT_S32, u32, s32, s32, int_sub_sat(a, b)) \
    X(BMSK_CLAMP, u32, u32, u32, int_mask(a, b, 0)) \
    X(BMSK_WRAP, u32, u32, u32, int_mask(a, b, 1)) \
    X(SZEXT_U32, u32, u32, u32, int_extract_u64(a, 0, b > 32 ? 32 : b, 32)) \
    X(SZEXT_S32, u32, s32, u32, int_extract_s64(a, 0, b > 32 ? 32 : b, 32)) \
    X(ADD_F16, u16, u16, u16, h_add_f16(a, b, op->mode)) \
    X(SUB_F16, u16, u16, u16, h_sub_f16(a, b, op->mode)) \
    X(MUL_F16, u16, u16, u16, h_mul_f16(a, b, op->mode)) \
    X(MIN_F16, u16, u16, u16, h_min_f16(a, b, op->mode)) \
    X(MAX_F16, u16, u16, u16, h_max_f16(a, b, op->mode)) \
    X(ADD_BF16, u16, u16, u16, h_add_bf16(a, b, op->mode)) \
    X(SUB_BF16, u16, u16, u16, h_sub_bf16(a, b, op->mode)) \
    X(MUL_BF16, u16, u16, u16, h_mul_bf16(a, b, op->mode)) \
    X(MIN_BF16, u16, u16, u16, h_min_bf16(a, b, op->mode)) \
    X(MAX_BF16, u16, u16, u16, h_max_bf16(a, b, op->mode)) \
    X(ADD_F16X2, u32, u32, u32, SIM_BOTH2(h_add_f16)) \
    X(SUB_F16X2, u32, u32, u32, SIM_BOTH2(h_sub_f16)) \
    X(MUL_F16X2, u32, u32, u32, SIM_BOTH2(h_mul_f16)) \
    X(MIN_F16X2, u32, u32, u32, SIM_BOTH2(h_min_f16)) \
    X(MAX_F16X2, u32, u32, u32, SIM_BOTH2(h_max_f16)) \
    X(ADD_BF16X2, u32, u32, u32, SIM_BOTH2(h_add_bf16)) \
    X(SUB_BF16X2, u32, u32, u32, SIM_BOTH2(h_sub_bf16)) \
    X(MUL_BF16X2, u32, u32, u32, SIM_BOTH2(h_mul_bf16)) \
    X(MIN_BF16X2, u32, u32, u32, SIM_BOTH2(h_min_bf16)) \
    X(MAX_BF16X2, u32, u32, u32, SIM_BOTH2(h_max_bf16))

#define SIM_SLOW3(X) \
    X(MAD_HI_U64, u64, u64, u64, u64, int_mul_hi_u64(a, b) + c) \
    X(MAD_HI_S64, u64, s64, s64, u64, (u64)int_mul_hi_s64(a, b) + c) \
    X(MAD_HI_U16, u16, u16, u16, u16, ((u32)a * (u32)b >> 16) + c) \
    X(MAD_HI_S16, u16, s16, s16, u16, (u32)((s32)a * (s32)b >> 16) + c) \
    X(MAD_HI_SAT_S32, u32, s32, s32, s32, int_mad_hi_sat(a, b, c)) \
    X(MAD24_LO_U32, u32, u32, u32, u32, (a & 0xffffffu) * (b & 0xffffffu) + c) \
    X(MAD24_LO_S32, u32, u32, u32, u32, \
            (u32)((s32)(a << 8) >> 8) * (u32)((s32)(b << 8) >> 8) + c) \
    X(SAD_U16, u16, u16, u16, u16, c + (a > b ? a - b : b - a)) \
    X(SAD_S16, u16, s16, s16, u16, c + (a > b ? a - b : b - a)) \
    X(SAD_U64, u64, u64, u64, u64, c + (a > b ? a - b : b - a)) \
    X(SAD_S64, u64, s64, s64, u64, c + (a > b ? (u64)a - (u64)b : (u64)b - (u64)a)) \
    X(BFE_U32, u32, u32, u32, u32, int_extract_u64(a, b, c, 32)) \
    X(BFE_S32, u32, s32, u32, u32, int_extract_s64(a, b, c, 32)) \
    X(BFE_U64, u64, u64, u32, u32, int_extract_u64(a, b, c, 64)) \
    X(BFE_S64, u64, s64, u32, u32, int_extract_s64(a, b, c, 64)) \
    X(FNS_B32, u32, u32, u32, s32, int_nth_set(a, b, c)) \
    X(PRMT_B32, u32, u32, u32, u32, int_permute(a, b, c)) \
    X(PRMT_MODE_B32, u32, u32, u32, u32, int_permute_mode(a, b, c, op->mode)) \
    X(DP4A, u32, u32, u32, u32, int_dot4(a, b, c, op->mode & 1, op->mode >> 1 & 1)) \
    X(DP2A, u32, u32, u32, u32, \
            int_dot2(a, b, c, op->mode & 1, op->mode >> 1 & 1, op->mode >> 2 & 1)) \
    X(FMA_F16, u16, u16, u16, u16, h_fma_f16(a, b, c, op->mode)) \
    X(FMA_BF16, u16, u16, u16, u16, h_fma_bf16(a, b, c, op->mode)) \
    X(FMA_F16X2, u32, u32, u32, u32, SIM_BOTH3(h_fma_f16)) \
    X(FMA_BF16X2, u32, u32, u32, u32, SIM_BOTH3(h_fma_bf16))

// Comparisons give a bit a lane: X(name, type, expression over a and b).
#define SIM_COMPARE_INT(X, T, t) \
    X(EQ_##T, t, a == b) \
    X(NE_##T, t, a != b) \
    X(LT_##T, t, a < b) \
    X(LE_##T, t, a <= b) \
    X(GT_##T, t, a > b) \
    X(GE_##T, t, a >= b)

// The unordered ones are true where either is a NaN.
#define SIM_COMPARE_FLOAT(X, T, t, IN) \
    X(EQ_##T, t, IN(a) == IN(b)) \
    X(NE_##T, t, (int)(IN(a) < IN(b)) | (int)(IN(a) > IN(b))) \
    X(LT_##T, t, IN(a) < IN(b)) \
    X(LE_##T, t, IN(a) <= IN(b)) \
    X(GT_##T, t, IN(a) > IN(b)) \
    X(GE_##T, t, IN(a) >= IN(b)) \
    X(EQU_##T, t, !((int)(IN(a) < IN(b)) | (int)(IN(a) > IN(b)))) \
    X(NEU_##T, t, IN(a) != IN(b)) \
    X(LTU_##T, t, !(IN(a) >= IN(b))) \
    X(LEU_##T, t, !(IN(a) > IN(b))) \
    X(GTU_##T, t, !(IN(a) <= IN(b))) \
    X(GEU_##T, t, !(IN(a) < IN(b))) \
    X(NUM_##T, t, (int)(IN(a) == IN(a)) & (int)(IN(b) == IN(b))) \
    X(NAN_##T, t, (int)(IN(a) != IN(a)) | (int)(IN(b) != IN(b)))

#define SIM_COMPARE(X) \
    SIM_COMPARE_INT(X, U16, u16) \
    SIM_COMPARE_INT(X, S16, s16) \
    SIM_COMPARE_INT(X, U32, u32) \
    SIM_COMPARE_INT(X, S32, s32) \
    SIM_COMPARE_INT(X, U64, u64) \
    SIM_COMPARE_INT(X, S64, s64) \
    SIM_COMPARE_FLOAT(X, F32, f32, ) \
    SIM_COMPARE_FLOAT(X, FTZ_F32, f32, f32_flush) \
    SIM_COMPARE_FLOAT(X, F64, f64, ) \
    SIM_COMPARE_FLOAT(X, F16, u16, h_in_f16) \
    SIM_COMPARE_FLOAT(X, BF16, u16, h_in_bf16)
// clang-format on

#endif
