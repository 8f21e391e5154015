import asyncio
async def main():
    await asyncio.sleep(0.01)
    print("async", asyncio.get_running_loop().is_running())
    raise RuntimeError("from a task")
asyncio.run(main())
