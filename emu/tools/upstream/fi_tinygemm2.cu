// SPDX-License-Identifier: Apache-2.0
// FlashInfer's tinygemm2 on three rows; INPUTS elements of K.
#include "tinygemm2.cu"

#include "driver.cuh"

int main(void)
{
	const int rows = 3, in = INPUTS, out = 32;
	auto *x = filled<__nv_bfloat16>(rows * in, number),
	     *w = filled<__nv_bfloat16>(out * in, number);
	auto *bias = filled<__nv_bfloat16>(out, number),
	     *y = zeros<__nv_bfloat16>(rows * out);
	flashinfer::tinygemm2::tinygemm2_op({x, {rows, in}}, {w, {out, in}},
					    {bias, {out}}, {y, {rows, out}}, false);
	return finish();
}
