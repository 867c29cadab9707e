/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - graphs: nodes and the nodes before them.  A node has work of the queue, or
 * an event, or graphs of its own.  A graph that can be launched is a copy, whose nodes
 * keep the numbers of those from which they were copied.
 */
#ifndef EMU_GRAPH_H
#define EMU_GRAPH_H

#include "driver/queue.h"

/* A node before another one, and how much of it must have ended. */
struct emu_edge {
	CUgraphNode node;
	CUgraphEdgeData data;
};

struct CUgraphNode_st {
	int type; /* CU_GRAPH_NODE_TYPE_... */
	uint64_t id;
	uint64_t origin; /* id of the node of which it is a copy; 0: none */
	struct CUgraph_st *graph;
	struct emu_edge *before;
	size_t n_before;
	struct emu_work *work; /* of a kernel, copy, fill, function, or memory */
	void **arguments;      /* of a kernel: they point into its work; may be NULL */
	CUevent event;	       /* that is recorded or waited for */
	/* Graphs that the node runs: one, or those among which a value chooses. */
	CUgraph *graphs;
	uint32_t n_graphs;
	int condition; /* CU_GRAPH_COND_TYPE_... */
	CUgraphConditionalHandle handle;
	bool is_disabled; /* in a graph that can be launched */
	size_t index;	  /* in its graph, where that has an order */
	size_t place;	  /* in its graph, while that is copied or compared */
	uint32_t chain;	  /* in that order: nodes that follow one another */
	struct CUgraphNode_st *next;
};

struct CUgraph_st {
	struct CUgraphNode_st *first, *last; /* in the order of adding */
	size_t count;
	uint64_t capture;  /* its number; 0: the graph is not of a capture */
	CUgraphNode owner; /* of which it is a part; NULL: none */
	uint64_t id;
	uint64_t origin; /* id of the graph of which it is a copy; 0: none */
	/* Handles that were created for it. */
	CUgraphConditionalHandle *handles;
	size_t n_handles;
	/* Nodes after their dependencies, if the graph can be launched; else NULL. */
	CUgraphNode *order;
};

/* Graphs.  The lock must be held. */
CUgraph emu_graph_new(void);
void emu_graph_free(CUgraph graph);
/* NULL: no memory. */
CUgraph emu_graph_copy(CUgraph from);
/* Numbers the nodes in the order of adding: `place`. */
void emu_graph_number(CUgraph graph);
/* Replaces the graph that a node runs by a copy of another. */
CUresult emu_graph_replace(CUgraphNode node, CUgraph by);
/* The node of a copy that was copied from a node; also in the graphs of its nodes. */
CUgraphNode emu_graph_find_copy(const struct CUgraph_st *copy, uint64_t origin);
bool emu_graph_has(const struct CUgraph_st *graph, const struct CUgraphNode_st *node);
/* True if a node allocates or frees memory; also in the graphs of its nodes. */
bool emu_graph_has_memory(const struct CUgraph_st *graph);

/* Nodes.  A new one is the last of its graph; NULL: no memory. */
CUgraphNode emu_node_add(CUgraph graph, int type, struct emu_work *work);
void emu_node_remove(CUgraphNode node);
CUresult emu_node_depend(CUgraphNode node, CUgraphNode before,
			 const CUgraphEdgeData *data);
/* Gives a node other work of its kind, which it then owns. */
void emu_node_set_work(CUgraphNode node, struct emu_work *work);
/* A name for messages. */
const char *emu_node_title(int type);
/* CUDA_ERROR_INVALID_VALUE with a text if the node is not of the type. */
CUresult emu_node_check(const char *call, const struct CUgraphNode_st *node, int type);

struct CUgraphExec_st {
	CUgraph graph;
	CUgraph source; /* of which it is a copy; NULL: that was destroyed */
	uint64_t flags;
	/* In the order of streams: the number of each chain but the first one, which
	 * has the number of the stream in which the graph is launched. */
	uint32_t *streams;
	uint32_t n_chains;
	uint32_t seen[EMU_STREAMS]; /* what the last launch has done */
	struct CUgraphExec_st *next;
};

/* Orders a graph and the graphs of its nodes.  *cycle: a node of a cycle. */
CUresult emu_graph_sort(CUgraph graph, CUgraphNode *cycle);
/* A graph node for a launch in a stream that captures. */
CUresult emu_capture_graph(CUstream stream, CUgraph graph);

/* Values of conditional nodes: driver/conditional.c. */
bool emu_conditional_hold(CUgraphConditionalHandle handle);
void emu_conditional_leave(CUgraphConditionalHandle handle);
/* A launch begins: the value that the handle's creation gave, if any. */
void emu_conditional_begin(CUgraphConditionalHandle handle);
uint32_t emu_conditional_value(CUgraphConditionalHandle handle);

#endif
