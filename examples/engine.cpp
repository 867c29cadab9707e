// SPDX-License-Identifier: Apache-2.0
/*
 * engine.cpp - what an engine does with a model's folder: one call opens all of its
 * shards, every NVFP4 layer is packed, and one decoder block's linear layers
 * multiply activations of bf16 (W4A16).  Each product is compared with the exact one.
 * Without a folder it writes a small model of two shards and uses it.
 *
 *	c++ -std=c++17 engine.cpp $(pkg-config --cflags --libs nibblas) -o engine
 *	./engine [DIRECTORY [ROWS]]
 */
#include <nibblas.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

// ---- the library's objects, freed by themselves -----------------------------

template <auto Free> struct Freed {
	template <typename T> void operator()(T *object) const
	{
		Free(object);
	}
};
using Device = std::unique_ptr<nib_device, Freed<nib_device_close>>;
using File = std::unique_ptr<nib_file, Freed<nib_file_close>>;
using Packed = std::unique_ptr<nib_packed, Freed<nib_packed_free>>;
using Plan = std::unique_ptr<nib_plan, Freed<nib_plan_free>>;

void check(nib_status status, const nib_error &err)
{
	if (status != NIB_STATUS_OK)
		throw std::runtime_error(err.message);
}

using Floats = std::vector<std::uint16_t>; // bf16

// ---- a model: its layers by name, packed ------------------------------------

struct Layer {
	const nib_layer *stored; // of the file, which stays open
	Packed packed;
	std::int64_t rows() const
	{
		return stored->weight.rows;
	}
	std::int64_t cols() const
	{
		return stored->weight.k;
	}
};

class Model
{
      public:
	Model(nib_device *device, const std::string &folder)
	{
		nib_file *file = nullptr;
		nib_error err;

		check(nib_file_open(folder.c_str(), &file, &err), err);
		file_.reset(file);
		// What is named like NVFP4 and cannot be read has a reason.
		if (const auto *bad = nib_file_layer_defect_at(file, 0))
			throw std::runtime_error(std::string(bad->name) + ": " +
						 bad->reason);
		for (std::int64_t i = 0; i < nib_file_layer_count(file); i++) {
			const nib_layer *one = nib_file_layer_at(file, i);
			nib_packed *packed = nullptr;

			check(nib_pack(device, &one->weight, nullptr, &packed, &err),
			      err);
			bytes += nib_packed_bytes(packed);
			layers_[one->name] = {one, Packed(packed)};
		}
	}

	const Layer &operator[](const std::string &name) const
	{
		const auto found = layers_.find(name);

		if (found == layers_.end())
			throw std::runtime_error(name + ": is no NVFP4 layer");
		return found->second;
	}

	// The name of the first decoder block: "model.layers.0".
	std::string first_block() const
	{
		for (const auto &[name, layer] : layers_)
			if (const auto at = name.find(".self_attn.q_proj");
			    at != std::string::npos)
				return name.substr(0, at);
		throw std::runtime_error("no layer ends in self_attn.q_proj");
	}

	std::size_t count() const
	{
		return layers_.size();
	}
	std::size_t bytes = 0;

      private:
	File file_;
	std::map<std::string, Layer> layers_;
};

// ---- products ---------------------------------------------------------------

// y[rows, n] = x[rows, k] * layer^T, for each of the layers: one plan.
class Product
{
      public:
	Product(nib_device *device, nib_op op, std::int64_t rows,
		std::vector<const Layer *> layers)
	    : op_(op), layers_(std::move(layers))
	{
		const std::size_t outputs =
		    op == NIB_OP_DUAL_GEMM ? 1 : layers_.size();
		nib_plan *plan = nullptr;
		nib_error err;

		for (std::size_t i = 0; i < outputs; i++) {
			const Layer &one = *layers_[i];
			nib_problem p{};

			p.activations = NIB_ACTIVATIONS_DENSE;
			p.x.dtype = p.c.dtype = NIB_DTYPE_BF16;
			p.x.rows = p.c.rows = rows;
			p.x.cols = one.cols();
			p.c.cols = one.rows();
			p.b_packed = one.packed.get();
			p.alpha = one.stored->globals;
			if (op == NIB_OP_DUAL_GEMM) {
				p.b2_packed = layers_[1]->packed.get();
				p.alpha2 = layers_[1]->stored->globals;
			}
			y.emplace_back(rows * one.rows());
			problems_.push_back(p);
		}
		check(nib_plan_create(device, op, problems_.data(),
				      (std::int64_t)outputs, nullptr, &plan,
				      &err),
		      err);
		plan_.reset(plan);
	}

	// x: the same for all of them.
	void run(const Floats &x)
	{
		nib_error err;

		for (std::size_t i = 0; i < y.size(); i++) {
			problems_[i].x.data =
			    const_cast<std::uint16_t *>(x.data());
			problems_[i].c.data = y[i].data();
		}
		check(nib_run(plan_.get(), problems_.data(),
			      (std::int64_t)y.size(), nullptr, &err),
		      err);
	}

	// How many elements of the last run are outside of their bound.
	std::int64_t wrong() const
	{
		std::vector<nib_problem> plain = problems_;
		nib_check_result result{};
		nib_error err;

		for (std::size_t i = 0; i < plain.size(); i++) {
			plain[i].b_packed = plain[i].b2_packed = nullptr;
			plain[i].b = layers_[i]->stored->weight;
			if (op_ == NIB_OP_DUAL_GEMM)
				plain[i].b2 = layers_[1]->stored->weight;
		}
		result.struct_bytes = sizeof(result);
		check(nib_check(op_, plain.data(), (std::int64_t)plain.size(),
				nullptr, &result, &err),
		      err);
		return result.failed;
	}

	std::vector<Floats> y;

      private:
	nib_op op_;
	std::vector<const Layer *> layers_;
	std::vector<nib_problem> problems_;
	Plan plan_;
};

// ---- a small model ----------------------------------------------------------

constexpr std::int64_t hidden = 256, middle = 512, kv = 64;

void write_layer(nib_device *device, nib_writer *writer, std::int64_t rows,
		 std::int64_t k, unsigned &seed)
{
	std::vector<float> w(rows * k);
	std::vector<unsigned char> codes(rows * k / 2), scales(rows * k / 16);
	nib_dense dense{};
	nib_fp4 q{};
	float global = 0;
	nib_error err;

	for (float &value : w) {
		seed = seed * 1664525U + 1013904223U;
		value = (float)(int)(seed >> 8 & 0xffff) / 65536.F - 0.5F;
	}
	dense.data = w.data();
	dense.rows = q.rows = rows;
	dense.cols = q.k = k;
	q.codes = codes.data();
	q.scales = scales.data();
	check(nib_quantize(device, &dense, &q, nullptr, &global, &err), err);
	check(nib_writer_write_layer(writer, NIB_CHECKPOINT_MODELOPT, &q,
				     global, 0, &err),
	      err);
}

// Two shards, attention and the rest, and their index.
void write_model(nib_device *device, const std::filesystem::path &folder)
{
	struct Matrix {
		const char *name;
		std::int64_t rows, k;
	};
	const std::vector<Matrix> shards[2] = {
	    {{"self_attn.q_proj", hidden, hidden},
	     {"self_attn.k_proj", kv, hidden},
	     {"self_attn.v_proj", kv, hidden},
	     {"self_attn.o_proj", hidden, hidden}},
	    {{"mlp.gate_proj", middle, hidden},
	     {"mlp.up_proj", middle, hidden},
	     {"mlp.down_proj", hidden, middle}}};
	std::string map;
	unsigned seed = 1;
	nib_error err;

	for (int i = 0; i < 2; i++) {
		const std::string file = "model-0000" + std::to_string(i + 1) +
					 "-of-00002.safetensors";
		nib_writer *writer = nullptr;

		check(nib_writer_open((folder / file).c_str(), &writer, &err),
		      err);
		for (const auto &[leaf, rows, k] : shards[i]) {
			const auto name = std::string("model.layers.0.") + leaf;

			check(nib_writer_declare_layer(
				  writer, NIB_CHECKPOINT_MODELOPT, name.c_str(),
				  rows, k, 0, &err),
			      err);
			for (const char *part :
			     {"weight", "weight_scale", "weight_scale_2"})
				map += (map.empty() ? "" : ", ") +
				       ("\"" + name) + "." + part + "\": \"" +
				       file + "\"";
		}
		for (const auto &[leaf, rows, k] : shards[i])
			write_layer(device, writer, rows, k, seed);
		check(nib_writer_commit(writer, &err), err);
	}
	std::ofstream(folder / "model.safetensors.index.json")
	    << "{\"metadata\": {}, \"weight_map\": {" << map << "}}\n";
}

// A folder that goes when it is not needed any more.
class Temporary
{
      public:
	Temporary()
	{
		std::string name =
		    (std::filesystem::temp_directory_path() / "engine-XXXXXX");

		if (!mkdtemp(name.data()))
			throw std::runtime_error(name + ": cannot be made");
		path = name;
	}
	~Temporary()
	{
		std::error_code ignored;

		std::filesystem::remove_all(path, ignored);
	}
	Temporary(const Temporary &) = delete;
	Temporary &operator=(const Temporary &) = delete;
	std::filesystem::path path;
};

// ---- one decoder block -------------------------------------------------------

// Its linear layers, one after the other; norms, attention and residuals between
// them are the engine's.
std::int64_t run_block(nib_device *device, const Model &model,
		       std::int64_t rows)
{
	const std::string block = model.first_block();
	const auto layer = [&](const char *name) {
		return &model[block + name];
	};
	const Layer *q = layer(".self_attn.q_proj");
	Product qkv(
	    device, NIB_OP_GEMM, rows,
	    {q, layer(".self_attn.k_proj"), layer(".self_attn.v_proj")});
	Product o(device, NIB_OP_GEMM, rows, {layer(".self_attn.o_proj")});
	// silu(gate) * up is one call.
	Product gated(device, NIB_OP_DUAL_GEMM, rows,
		      {layer(".mlp.gate_proj"), layer(".mlp.up_proj")});
	Product down(device, NIB_OP_GEMM, rows, {layer(".mlp.down_proj")});
	Floats x(rows * q->cols());
	std::int64_t wrong = 0;

	for (std::size_t i = 0; i < x.size(); i++) {
		const float value = (float)(i * 7 % 23) / 8.F - 1.4F;
		std::uint32_t bits;

		std::memcpy(&bits, &value, sizeof(bits));
		x[i] = (std::uint16_t)(bits >> 16);
	}
	qkv.run(x);
	o.run(qkv.y[0]);
	gated.run(o.y[0]);
	down.run(gated.y[0]);
	for (const Product *one : {&qkv, &o, &gated, &down})
		wrong += one->wrong();
	std::printf("%s, %lld rows: 7 layers in 4 calls, %lld wrong\n",
		    block.c_str(), (long long)rows, (long long)wrong);
	return wrong;
}

int run(int argc, char **argv)
{
	std::unique_ptr<Temporary> made;
	nib_device *opened = nullptr;
	nib_error err;

	check(nib_device_open("cpu", nullptr, &opened, &err), err);
	const Device device(opened);
	if (argc < 2) {
		made = std::make_unique<Temporary>();
		write_model(opened, made->path);
	}
	const Model model(opened, made ? made->path.string() : argv[1]);
	std::printf("%zu layers, %.1f MB packed\n", model.count(),
		    (double)model.bytes / 1e6);
	return run_block(opened, model, argc > 2 ? std::atoll(argv[2]) : 5) !=
	       0;
}

} // namespace

int main(int argc, char **argv)
{
	try {
		return run(argc, argv);
	} catch (const std::exception &error) {
		std::fprintf(stderr, "engine: %s\n", error.what());
		return 1;
	}
}
