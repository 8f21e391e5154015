import logging
logging.warning("to stderr")
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(module)s %(message)s")
logging.info("info %d", 1)
