"""Training learned drafters: prompts, the target's answers with its hidden states, and the heads that learn from them.

Making data needs what the engine needs; training needs PyTorch (extra `train`).
"""
