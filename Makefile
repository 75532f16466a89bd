# Doors of the project. `make` alone shows them.

CARGO ?= cargo
STANDIN_PACKAGES := standin-hal standin-runtime standin-acl-impl standin-acl standin-mstx

.PHONY: help standin test-standin

help:
	@echo "make standin       build the stand-in Ascend device into target/standin"
	@echo "make test-standin  test the stand-in device with C programs"

standin:
	$(CARGO) build --release $(addprefix -p ,$(STANDIN_PACKAGES))
	scripts/standin-install target/release target/standin

test-standin: standin
	$(CARGO) test -p standin-support -p standin-truth -p standin-hal -p standin-testing
