"""The socket that the server listens on."""

from __future__ import annotations

import asyncio
import socket

from polyformer.server.listening import bind_port


def test_answers_are_sent_without_delay() -> None:
    """The head and the body of an answer are two writes; the second would wait 40 ms until the client acknowledges."""

    async def accepted_without_delay(listening: socket.socket) -> bool:
        arrived: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            opened = writer.get_extra_info("socket")
            arrived.set_result(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
            writer.close()

        async with await asyncio.start_server(accept, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            without_delay = await asyncio.wait_for(arrived, 10)
            writer.close()
            return without_delay

    assert asyncio.run(accepted_without_delay(bind_port("127.0.0.1", 0, None)))
