/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_cuda.c - quantise, amax, dequantise, scale layouts on a GPU. */
#include "api/error.h"
#include "cuda.h"

static enum nib_status not_yet(const struct nib_device *device,
			       struct nib_error *err)
{
	return nib_fail(err, NIB_UNSUPPORTED,
			"%s: this version converts numbers on 'cpu' alone",
			cuda_device(device)->name);
}

enum nib_status cuda_quantize(struct nib_device *device,
			      const struct nib_dense *x,
			      const struct nib_nvfp4 *q,
			      const struct nib_quantize_options *options,
			      float *global_used, struct nib_error *err)
{
	(void)x;
	(void)q;
	(void)options;
	(void)global_used;
	return not_yet(device, err);
}

enum nib_status cuda_amax(struct nib_device *device, const struct nib_dense *x,
			  bool saturate, float *amax, struct nib_error *err)
{
	(void)x;
	(void)saturate;
	(void)amax;
	return not_yet(device, err);
}

enum nib_status cuda_dequantize(struct nib_device *device,
				const struct nib_nvfp4 *q, float global,
				const struct nib_dense *y, void *stream,
				struct nib_error *err)
{
	(void)q;
	(void)global;
	(void)y;
	(void)stream;
	return not_yet(device, err);
}

enum nib_status cuda_convert_scales(struct nib_device *device,
				    const struct nib_nvfp4 *from,
				    const struct nib_nvfp4 *to, void *stream,
				    struct nib_error *err)
{
	(void)from;
	(void)to;
	(void)stream;
	return not_yet(device, err);
}
