/* SPDX-License-Identifier: Apache-2.0 */
/* choose.h - which product of Ampere and Ada computes a plan. */
#ifndef NIB_SM80_CHOOSE_H
#define NIB_SM80_CHOOSE_H

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"

struct cuda_choice sm80_choose(const struct nib_plan *plan);

#endif
